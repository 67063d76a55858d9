// A command of the command line, and what all commands share.
#pragma once
#include <functional>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "src/cli/options/option_table.hpp"
#include "src/cli/options/settings.hpp"
#include "src/setup/options.hpp"

namespace kvmserver::cli {

struct Command;
class JsonEvents;

// A command's environment. Results go to `out`, everything else to `err`.
struct Context {
    std::ostream& out;
    std::ostream& err;
    std::string folder; // the current folder, absolute
    unsigned cpus = 1;
    std::span<const Command> commands = {}; // set by run_cli
    int events_fd = -1;                     // where JsonEvents go; -1: to `out`
    JsonEvents* events = nullptr;           // of a command that runs with --json and has them
};

// The streams and values of this process.
Context host_context();

enum class Operands {
    none,
    ours,  // options may follow them
    guest, // the first is the program; all later words are its arguments, unchanged
};

// What the shell offers for an operand, as `kvmserver completion --words` lists it.
enum class Words { none, functions, versions, remotes };

struct Invocation {
    Settings settings; // from the command line
    std::vector<std::string> operands;
    bool named = true; // false: no command was given
    // The option with an optional value that was given without one directly before the first operand.
    std::string bare_before;
    // The words after "++": "storage" and more.
    std::optional<std::vector<std::string>> storage = {};
};

struct Command {
    std::string name;
    std::string synopsis; // such as "PROGRAM [ARGS...]"
    std::string summary;
    Operands operands = Operands::none;
    std::vector<OptionSpec> options;
    // Returns the exit code. Throws UserError, HostError.
    std::function<int(const Invocation&, Context&)> action;
    std::vector<Words> words = {}; // by operand
    bool has_events = false;       // --json prints events (docs/COMMANDS.md)
    bool storage = false;          // "++" begins the words of a second program
};

// "[PROGRAM [ARGS...]] [++ storage ...]": what may stand behind the options.
inline std::string operands_of(const Command& command) {
    const std::string more = command.storage ? "[++ storage [OPTIONS] PROGRAM [ARGS...]]" : "";
    return command.synopsis + (command.synopsis.empty() || more.empty() ? "" : " ") + more;
}

// Parses the words (without argv[0]) and runs the command. Prints an error as one line. Returns the exit code. Without
// a command it runs the one named "run" with Invocation::named = false.
int run_cli(std::span<const Command> commands, const std::vector<std::string>& words, Context context);

// The commands. A MachineAction is run_program, make_snapshot or run_snapshot (src/setup/options.hpp).
using MachineAction = std::function<int(const Options&)>;
Command run_command(const MachineAction& action);
Command snapshot_command(const MachineAction& action);
Command snaprun_command(const MachineAction& action);
Command debug_command(const MachineAction& action);
Command inspect_command();
Command doctor_command(const std::string& device = "/dev/kvm");
Command version_command();
Command completion_command();
Command serve_command();

} // namespace kvmserver::cli
