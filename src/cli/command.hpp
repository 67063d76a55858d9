// A command of the command line, and what all of them share.
#pragma once
#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "src/cli/options/option_table.hpp"
#include "src/cli/options/settings.hpp"
#include "src/setup/options.hpp"

namespace kvmserver::cli {

struct Command;

// What a command sees of its surroundings. Results go to out, everything else to err.
struct Context {
    std::ostream& out;
    std::ostream& err;
    std::string folder; // the current one, absolute
    unsigned cpus = 1;
    std::span<const Command> commands = {}; // set by run_cli
};

// Streams and values of this process.
Context host_context();

enum class Operands {
    none,
    ours,  // options may follow them
    guest, // the first is the program; all words after it are its arguments, untouched
};

struct Invocation {
    Settings settings; // of the command line
    std::vector<std::string> operands;
    bool named = true;       // false: no command was given
    std::string bare_before; // long name of the option with an optional value, given without, directly before
                             // the first operand
};

struct Command {
    std::string name;
    std::string synopsis; // operands as in "PROGRAM [ARGS...]"
    std::string summary;
    Operands operands = Operands::none;
    std::vector<OptionSpec> options;
    // Returns the exit code; throws UserError, HostError.
    std::function<int(const Invocation&, Context&)> action;
};

// Parses the words (without the program's own name), runs the command, prints errors as one line each and
// returns the exit code. Without a command the one named "run" is invoked with Invocation::named = false.
int run_cli(std::span<const Command> commands, const std::vector<std::string>& words, Context context);

// The commands. MachineAction is run_program, make_snapshot or run_snapshot (src/setup/options.hpp).
using MachineAction = std::function<int(const Options&)>;
Command run_command(MachineAction action);
Command snapshot_command(MachineAction action);
Command snaprun_command(MachineAction action);
Command inspect_command();
Command doctor_command(const std::string& device = "/dev/kvm");
Command version_command();
Command completion_command();
Command serve_command();

std::string version_line(); // "kvmserver X.Y.Z\n"

} // namespace kvmserver::cli
