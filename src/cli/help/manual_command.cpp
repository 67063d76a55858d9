// The manual page of one command, kvmserver-COMMAND(1), from the tables that --help is made of.
#include <fmt/format.h>

#include <algorithm>

#include "src/cli/help/examples.hpp"
#include "src/cli/help/help.hpp"
#include "src/cli/help/roff.hpp"
#include "src/cli/options/arguments.hpp"

namespace kvmserver::cli {
namespace {

// A variable or a file, of the commands that have the option.
struct Concerns {
    std::string_view option; // "" concerns every command
    std::string_view name;
    std::string_view text;
};

constexpr Concerns kVariables[] = {
    {"store", "KVMSERVER_STORE", "the store, where --store is not given"},
    {"store", "XDG_DATA_HOME", "its kvmserver is the user's store (~/.local/share/kvmserver)"},
    {"remote", "KVMSERVER_TOKEN", "the token for --remote, where --token-file is not given"},
    {"remote", "KVMSERVER_REMOTES", "the file of remotes"},
    {"cache", "XDG_CACHE_HOME", "its kvmserver is where snapshots are kept unpacked"},
    {"", "NO_COLOR", "no colours"},
};

constexpr Concerns kFiles[] = {
    {"strict", "kvmserver.toml", "the manifest: the options of the program by their long names, and the function's"},
    {"store", "/var/lib/kvmserver", "root's store, and that of the service"},
    {"store", "~/.local/share/kvmserver", "the store of other users"},
    {"store", "STORE/admin.sock", "where the daemon of that store answers commands"},
    {"remote", "~/.config/kvmserver/remotes.json", "the daemons that login knows, and their tokens"},
    {"cache", "~/.cache/kvmserver", "unpacked snapshots"},
    {"access-log", "/etc/default/kvmserver", "address and options of the service"},
};

bool has(const Command& command, std::string_view option) { return find_option(command.options, option); }

// Whether the command has the options of machines.
bool runs_machines(const Command& command) { return has(command, "max-boot-time"); }

// "[PROGRAM [ARGS...]]" with the words in italics and the signs upright.
std::string words_in_italics(std::string_view synopsis) {
    const auto is_word = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '.';
    };
    std::string text, word;
    for (std::size_t i = 0; i <= synopsis.size(); ++i) {
        if (i < synopsis.size() && is_word(synopsis[i])) {
            word += synopsis[i];
            continue;
        }
        if (!word.empty())
            text += word.starts_with('-') ? roff_bold(word) : roff_italic(word);
        word.clear();
        if (i < synopsis.size())
            text += roff(synopsis.substr(i, 1));
    }
    return text;
}

std::string synopsis(const Command& command) {
    std::string line = roff_bold("kvmserver " + command.name);
    if (!command.options.empty())
        line += " [" + roff_italic("OPTIONS") + "]";
    if (const std::string operands = operands_of(command); !operands.empty())
        line += ' ' + words_in_italics(operands);
    return ".SH SYNOPSIS\n" + line + "\n";
}

std::string description(const Command& command) {
    std::string summary = command.summary;
    summary.front() = summary.front() >= 'a' ? char(summary.front() - 'a' + 'A') : summary.front();
    std::string text = ".SH DESCRIPTION\n" + roff_filled(roff(summary)) + ".\n";
    if (command.operands == Operands::guest)
        text += ".PP\nOptions stand before and after the command.\nWhat follows " + roff_italic("PROGRAM") +
                " is the program\\(aqs own.\n";
    if (runs_machines(command))
        text += ".PP\nOptions may also stand in " + roff_italic("kvmserver.toml") +
                ", by their long names.\nThe command line wins.\n";
    if (has(command, "remote"))
        text += ".PP\nThe command talks to the daemon of the store.\nWhen none runs, it opens the store itself.\n";
    return text;
}

std::string options(const Command& command) {
    std::string text = ".SH OPTIONS\n";
    std::vector<std::string_view> groups; // in the order of --help
    std::vector<OptionSpec> all(command.options);
    for (const OptionSpec& spec : common_options())
        if (!has(command, spec.name))
            all.push_back(spec);
    for (const OptionSpec& spec : all)
        if (!spec.group.empty() && std::ranges::find(groups, spec.group) == groups.end())
            groups.push_back(spec.group);
    for (const std::string_view group : groups) {
        if (group != "Options")
            text += fmt::format(".SS {}\n", roff(group));
        for (const OptionSpec& spec : all)
            if (spec.group == group)
                text += roff_option(spec);
    }
    return text;
}

std::string concerning(const Command& command, std::string_view heading, std::span<const Concerns> all) {
    std::string text;
    for (const Concerns& each : all)
        if (each.option.empty() || has(command, each.option))
            text += roff_entry(roff_italic(each.name), roff(each.text));
    return text.empty() ? "" : fmt::format(".SH {}\n{}", heading, text);
}

std::string examples(const Command& command) {
    std::string text;
    for (const Example& example : examples_of(command.name))
        text += roff_entry(roff_bold(example.line), roff(example.does));
    return text.empty() ? "" : ".SH EXAMPLES\n" + text;
}

} // namespace

std::string manual_of(const Command& command) {
    const std::string name = "kvmserver-" + command.name;
    return roff_title(name) + fmt::format(".SH NAME\n{} \\- {}\n", roff(name), roff(command.summary)) +
           synopsis(command) + description(command) + options(command) +
           roff_exit_status(command.name == "run" ? ".PP\nThe command ends with the status of the program.\nIf a "
                                                    "signal killed it, that is 128 plus the signal\\(aqs number.\n"
                                                  : "") +
           concerning(command, "ENVIRONMENT", kVariables) + concerning(command, "FILES", kFiles) + examples(command) +
           ".SH SEE ALSO\n.BR kvmserver (1)\n";
}

} // namespace kvmserver::cli
