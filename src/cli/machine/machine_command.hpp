// What `run`, `snapshot` and `snaprun` share: options, the options file, --print-config.
#pragma once
#include "src/cli/command.hpp"

namespace kvmserver::cli {

// The options on the command line of one of kRun, kSnapshot, kSnaprun.
std::vector<OptionSpec> options_of(unsigned command);

struct MachineJob {
    Options options;     // program, args and snapshot_file still empty, but for --output
    bool done = false;   // --print-config: nothing more to do
    std::string program; // operands, or [run] of the file
    std::vector<std::string> args;
};

// Reads the options file, merges, checks; prints warnings and, in verbose mode, what has no effect.
MachineJob prepare(unsigned command, const Invocation& invocation, Context& context);

} // namespace kvmserver::cli
