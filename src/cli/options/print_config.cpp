#include "src/cli/options/print_config.hpp"

#include <fmt/format.h>

#include "src/cli/options/option_table.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::cli {
namespace {

std::string quoted(const std::string& text) {
    if (!tinykvm::is_utf8(text))
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
    const bool word =
        spec.kind == Kind::count_or_word && values.front().find_first_not_of("0123456789") != std::string::npos;
    return spec.kind == Kind::text || word ? quoted(values.front()) : values.front();
}

std::string default_literal(const OptionSpec& spec) {
    if (spec.is_list())
        return "[]";
    if (spec.kind == Kind::flag)
        return "false";
    return spec.kind == Kind::text ? quoted(std::string(spec.fallback)) : std::string(spec.fallback);
}

} // namespace

std::string config_text(const Settings& settings, unsigned command, const RunSection& run,
                        const std::optional<StorageSection>& storage) {
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
    if (storage) {
        text += fmt::format("\n[storage]\nprogram = {}\nargs = {}\n1-to-1 = {}\n", quoted(storage->run.program),
                            array(storage->run.args), storage->one_to_one);
        for (const OptionSpec& spec : machine_options())
            if (const auto at = storage->settings.find(spec.name); at != storage->settings.end())
                text += fmt::format("{} = {}\n", spec.name, literal(spec, at->second.values));
    }
    return text;
}

} // namespace kvmserver::cli
