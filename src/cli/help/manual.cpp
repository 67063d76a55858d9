// The manual page, generated from the option tables, so that it cannot differ from --help.
#include <fmt/format.h>

#include <algorithm>

#include "src/cli/help/examples.hpp"
#include "src/cli/help/help.hpp"
#include "src/cli/options/arguments.hpp"

namespace kvmserver::cli {
namespace {

// Escapes text for roff. A line that begins with a dot or an apostrophe would be a request.
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
        else
            escaped += c;
    }
    return escaped;
}

std::string bold(std::string_view text) { return "\\fB" + roff(text) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + roff(text) + "\\fR"; }

// "FILE", or "NAME" if the value is one of several names, which the text lists.
std::string placeholder(const OptionSpec& spec) {
    return spec.value.find('|') == spec.value.npos ? std::string(spec.value) : "NAME";
}

std::string option_entry(const OptionSpec& spec, const std::string& only) {
    std::string names = spec.letter ? bold(fmt::format("-{}", spec.letter)) + ", " : "";
    names += bold("--" + std::string(spec.name));
    if (spec.takes_value())
        names += ' ' + italic(placeholder(spec));
    else if (!spec.value.empty())
        names += "[=" + italic(placeholder(spec)) + "]";
    std::string text(spec.help);
    if (spec.value.find('|') != spec.value.npos) {
        std::string choices(spec.value);
        std::ranges::replace(choices, '|', ' ');
        text += ": " + choices;
    }
    if (!spec.fallback.empty())
        text += fmt::format(" ({})", spec.fallback);
    text += only;
    return fmt::format(".TP\n{}\n{}\n", names, text.empty() ? "\\ " : roff(text));
}

// Whether the command has the options of machines.
bool runs_machines(const Command& command) { return find_option(command.options, "max-boot-time"); }

std::string synopsis(const Command& command) {
    std::string line = "\\fBkvmserver " + roff(command.name) + "\\fR";
    if (!command.options.empty())
        line += " [" + italic("OPTIONS") + "]";
    if (!command.synopsis.empty())
        line += ' ' + italic(command.synopsis);
    return line;
}

std::string command_sections(std::span<const Command> commands) {
    std::string text = ".SH COMMANDS\n";
    for (const Command& command : commands) {
        text += fmt::format(".SS {}\n{}\n.PP\n{}.\n", roff(command.name), synopsis(command), roff(command.summary));
        for (const Example& example : examples_of(command.name))
            text += fmt::format(".PP\n{}\n.RS\n{}\n.RE\n", bold(example.line),
                                example.does.empty() ? "\\ " : roff(example.does));
        if (runs_machines(command)) {
            text += "Its options are those of \\(lqOPTIONS OF run, snapshot AND snaprun\\(rq.\n";
            continue;
        }
        for (const OptionSpec& spec : command.options)
            text += option_entry(spec, "");
    }
    return text;
}

std::string offered_by(const OptionSpec& spec) {
    if (spec.offered == kAll)
        return "";
    std::string names;
    const std::pair<unsigned, const char*> commands[] = {{kRun, "run"}, {kSnapshot, "snapshot"}, {kSnaprun, "snaprun"}};
    for (const auto& [bit, name] : commands)
        if (spec.offered & bit)
            names += (names.empty() ? "" : ", ") + std::string(name);
    return fmt::format("; {} only", names);
}

std::string machine_sections() {
    std::string text = ".SH OPTIONS OF run, snapshot AND snaprun\n"
                       "By their long names they may also stand in \\fIkvmserver.toml\\fR.\n";
    std::string_view group;
    for (const OptionSpec& spec : machine_options()) {
        if (spec.group == kCompatibility)
            continue;
        if (spec.group != group)
            text += fmt::format(".SS {}\n", roff(group = spec.group));
        text += option_entry(spec, offered_by(spec));
    }
    text += fmt::format(".SS {}\n", roff(kCompatibility));
    std::string names;
    for (const OptionSpec& spec : machine_options())
        if (spec.group == kCompatibility)
            names += (names.empty() ? "" : ", ") + bold("--" + std::string(spec.name));
    return text + names + ".\n";
}

constexpr const char* kBegin = R"(.SH NAME
kvmserver \- run Linux server programs as snapshots, each request from a pristine machine
.SH SYNOPSIS
.B kvmserver
.RI [ OPTIONS ]
.I COMMAND
\&...
.br
.B kvmserver
.RI [ OPTIONS ]
.SH DESCRIPTION
.B kvmserver
boots an unmodified Linux server program in a tiny KVM machine until it waits for its first connection, saves the
machine as one file, and serves every connection or HTTP request from a machine that is put back to exactly that state.
.PP
Without a command it runs the program that
.I kvmserver.toml
names in the current folder.
Options may stand before and after the command; what follows
.I PROGRAM
is the program\(aqs own.
Results go to stdout, everything else to stderr.
Nothing is permitted to the program unless an option says so.
)";

constexpr const char* kEnd = R"(.SH EXIT STATUS
.TP
0
success
.TP
1
failure
.TP
2
wrong usage
.TP
3
not found
.TP
4
not permitted
.TP
5
conflict, as a port in use or a file that is there already
.TP
6
unreachable, or not in time
.TP
7
the snapshot is corrupt or incompatible
.TP
8
no usable KVM: see
.B kvmserver doctor
.PP
.B kvmserver run
passes the status of the program on, 128 and the signal\(aqs number when it was killed.
.SH ENVIRONMENT
.TP
KVMSERVER_STORE
the store, where
.B \-\-store
is not given
.TP
XDG_DATA_HOME
its
.I kvmserver
is the store otherwise
.RI ( ~/.local/share/kvmserver ;
root\(aqs is
.IR /var/lib/kvmserver )
.TP
NO_COLOR
no colours
.SH FILES
.TP
.I kvmserver.toml
the manifest of a function, and the options of its program.
At top level stand options by their long names; [run] has
.I program
and
.IR args ;
[function] has
.IR name ,
.I routes
and
.IR secrets ,
[function.env] variables, [function.build]
.I command
and
.IR watch ,
[function.hooks]
.I health
and
.IR after\-restore .
.SH EXAMPLES
.nf
kvmserver init \-\-template node hello
kvmserver dev hello \-\-watch
kvmserver deploy hello

kvmserver snapshot \-\-allow\-all \-w 1 \-o app.snap node server.js
kvmserver snaprun \-\-http app.snap
.fi
)";

} // namespace

std::string manual(std::span<const Command> commands) {
    std::string version = version_line();
    version.pop_back();
    std::string common = ".SH COMMON OPTIONS\n";
    for (const OptionSpec& spec : common_options())
        common += option_entry(spec, "");
    return fmt::format(".\\\" Made by `kvmserver help --man`.\n.TH KVMSERVER 1 \"\" \"{}\" \"User Commands\"\n",
                       version) +
           kBegin + command_sections(commands) + common + machine_sections() + kEnd;
}

} // namespace kvmserver::cli
