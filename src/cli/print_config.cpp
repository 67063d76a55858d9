#include "src/cli/print_config.hpp"

#include <fmt/format.h>

#include "src/cli/option_table.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

bool is_utf8(std::string_view text) {
    for (std::size_t i = 0; i < text.size();) {
        const auto byte = [&](std::size_t at) {
            return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u;
        };
        const unsigned first = byte(i);
        const std::size_t length = first < 0x80   ? 1
                                   : first < 0xc2 ? 0
                                   : first < 0xe0 ? 2
                                   : first < 0xf0 ? 3
                                   : first < 0xf5 ? 4
                                                  : 0;
        if (length == 0)
            return false;
        for (std::size_t k = 1; k < length; ++k)
            if ((byte(i + k) & 0xc0) != 0x80)
                return false;
        // Overlong forms, surrogates and what is beyond U+10FFFF.
        if ((first == 0xe0 && byte(i + 1) < 0xa0) || (first == 0xed && byte(i + 1) > 0x9f) ||
            (first == 0xf0 && byte(i + 1) < 0x90) || (first == 0xf4 && byte(i + 1) > 0x8f))
            return false;
        i += length;
    }
    return true;
}

std::string quoted(const std::string& text) {
    if (!is_utf8(text))
        throw tinykvm::UserError(tinykvm::ExitCode::usage,
                                 fmt::format("'{}' is not UTF-8 and cannot be written as TOML", text));
    std::string result = "\"";
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\')
            result += {'\\', c};
        else if (byte < 0x20 || byte == 0x7f)
            result += fmt::format("\\u{:04X}", byte);
        else
            result += c;
    }
    return result + "\"";
}

std::string array(const std::vector<std::string>& values) {
    std::string result;
    for (const std::string& value : values)
        result += (result.empty() ? "" : ", ") + quoted(value);
    return "[" + result + "]";
}

std::string literal(const OptionSpec& spec, const std::vector<std::string>& values) {
    if (spec.is_list())
        return array(values);
    return spec.kind == Kind::text ? quoted(values.front()) : values.front();
}

std::string default_literal(const OptionSpec& spec) {
    if (spec.is_list())
        return "[]";
    if (spec.kind == Kind::flag)
        return "false";
    return spec.kind == Kind::text ? quoted(std::string(spec.fallback)) : std::string(spec.fallback);
}

} // namespace

std::string config_text(const Settings& settings, unsigned command, const RunSection& run) {
    std::string text;
    for (const OptionSpec& spec : machine_options()) {
        if (!spec.in_file || spec.group.empty())
            continue;
        if (const auto at = settings.find(spec.name); at != settings.end())
            text += fmt::format("{} = {}\n", spec.name, literal(spec, at->second.values));
        else if ((spec.offered & ~spec.without_effect & command) &&
                 (spec.is_list() || spec.kind == Kind::flag || !spec.fallback.empty()))
            text += fmt::format("# {} = {}\n", spec.name, default_literal(spec));
    }
    if (!run.program.empty())
        text += fmt::format("\n[run]\nprogram = {}\nargs = {}\n", quoted(run.program), array(run.args));
    return text;
}

} // namespace kvmserver::cli
