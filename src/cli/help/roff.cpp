#include "src/cli/help/roff.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/cli/version.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

using tinykvm::ExitCode;

constexpr std::pair<ExitCode, const char*> kExitCodes[] = {
    {ExitCode::ok, "success"},
    {ExitCode::failure, "failure"},
    {ExitCode::usage, "wrong usage"},
    {ExitCode::not_found, "not found"},
    {ExitCode::not_permitted, "not permitted"},
    {ExitCode::conflict, "conflict, such as a port in use or a file that exists already"},
    {ExitCode::unreachable, "unreachable, or timed out"},
    {ExitCode::bad_snapshot, "the snapshot is corrupt or incompatible"},
    {ExitCode::no_kvm, "no usable KVM: see kvmserver doctor"},
};

// "FILE", or "NAME" if the value is one of several names, which the text lists.
std::string placeholder(const OptionSpec& spec) {
    return spec.value.find('|') == spec.value.npos ? std::string(spec.value) : "NAME";
}

} // namespace

// A line that begins with a dot or an apostrophe would be a request.
std::string roff(std::string_view text) {
    std::string escaped;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        const bool begins = i == 0 || text[i - 1] == '\n';
        if (begins && (c == '.' || c == '\''))
            escaped += "\\&";
        if (c == '\\')
            escaped += "\\e";
        else if (c == '-')
            escaped += "\\-";
        else if (c == '\'')
            escaped += "\\(aq";
        else if (c == '`')
            escaped += "\\(ga";
        else if (c == '~')
            escaped += "\\(ti";
        else
            escaped += c;
    }
    return escaped;
}

std::string roff_bold(std::string_view text) { return "\\fB" + roff(text) + "\\fR"; }
std::string roff_italic(std::string_view text) { return "\\fI" + roff(text) + "\\fR"; }

std::string roff_title(std::string_view name) {
    std::string title(name);
    std::ranges::transform(title, title.begin(), [](char c) { return c >= 'a' && c <= 'z' ? char(c - 'a' + 'A') : c; });
    return fmt::format(".\\\" Made by kvmserver help --man, from the tables of --help.\n"
                       ".TH {} 1 {} \"kvmserver {}\" \"User Commands\"\n",
                       roff(title), version_date(), roff(version_number()));
}

std::string roff_filled(std::string_view text) {
    constexpr std::size_t kWidth = 79; // mandoc -T lint
    std::string filled, line;
    for (std::size_t begin = 0, end; begin < text.size(); begin = end + 1) {
        end = std::min(text.find(' ', begin), text.size());
        std::string word(text.substr(begin, end - begin));
        if (!line.empty() && line.size() + 1 + word.size() > kWidth) {
            filled += line + "\n";
            line.clear();
            if (word.starts_with('.') || word.starts_with('\''))
                word.insert(0, "\\&");
        }
        line += (line.empty() ? "" : " ") + word;
    }
    return filled + line;
}

std::string roff_entry(std::string_view tag, std::string_view text) {
    return fmt::format(".TP\n{}\n{}\n", tag, text.empty() ? "\\ " : roff_filled(text));
}

std::string roff_option(const OptionSpec& spec) {
    std::string names = spec.letter ? roff_bold(fmt::format("-{}", spec.letter)) + ", " : "";
    names += roff_bold("--" + std::string(spec.name));
    if (spec.takes_value())
        names += ' ' + roff_italic(placeholder(spec));
    else if (!spec.value.empty())
        names += "[=" + roff_italic(placeholder(spec)) + "]";
    std::string text(spec.help);
    if (spec.value.find('|') != spec.value.npos) {
        std::string choices(spec.value);
        for (auto at = choices.find('|'); at != choices.npos; at = choices.find('|'))
            choices.replace(at, 1, ", ");
        text += ": " + choices;
    }
    if (!spec.fallback.empty())
        text += fmt::format("{}({})", text.empty() ? "" : " ", spec.fallback);
    return roff_entry(names, roff(text));
}

std::string roff_exit_status(std::string_view more) {
    std::string text = ".SH EXIT STATUS\n";
    for (const auto& [code, means] : kExitCodes)
        text += roff_entry(std::to_string(static_cast<int>(code)), roff(means));
    return text + std::string(more);
}

} // namespace kvmserver::cli
