// The manual page kvmserver(1): what all commands share. manual_command.cpp makes those of the commands.
#include <fmt/format.h>

#include "src/cli/help/help.hpp"
#include "src/cli/help/roff.hpp"
#include "src/cli/options/arguments.hpp"

namespace kvmserver::cli {
namespace {

constexpr const char* kBegin = R"(.SH NAME
kvmserver \- run Linux server programs as snapshots of machines
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
boots an unmodified Linux server program in a tiny KVM machine
until it waits for its first connection, saves the machine as one file,
and serves every connection or HTTP request from a machine
that is put back to exactly that state.
.PP
Without a command it runs the program that
.I kvmserver.toml
names in the current folder.
Options may stand before and after the command; what follows
.I PROGRAM
is the program\(aqs own.
Results go to stdout, everything else to stderr.
Nothing is permitted to the program unless an option says so.
.SH COMMANDS
Each command has a page of its own.
)";

constexpr const char* kEnd = R"(.SH ENVIRONMENT
.TP
.B KVMSERVER_STORE
the store, where
.B \-\-store
is not given
.TP
.B XDG_DATA_HOME
its
.I kvmserver
is the store otherwise
.RI ( \(ti/.local/share/kvmserver ;
root\(aqs is
.IR /var/lib/kvmserver )
.TP
.B NO_COLOR
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
.SH SEE ALSO
.BR kvmserver\-run (1)
and the other pages under COMMANDS.
)";

} // namespace

std::string manual(std::span<const Command> commands) {
    std::string text = roff_title("kvmserver") + kBegin;
    for (const Command& command : commands)
        text += roff_entry(fmt::format("\\fB{}\\fR(1)", roff("kvmserver-" + command.name)), roff(command.summary));
    text += ".SH OPTIONS\nEvery command has these.\n";
    for (const OptionSpec& spec : common_options())
        text += roff_option(spec);
    text += roff_exit_status(".PP\n.B kvmserver run\nends with the status of the program.\n"
                             "If a signal killed it, that is 128 plus the signal\\(aqs number.\n");
    return text + kEnd;
}

} // namespace kvmserver::cli
