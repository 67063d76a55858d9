// What `run`, `snapshot` and `snaprun` share: options, the options file, --print-config.
#pragma once
#include "src/cli/command.hpp"

namespace kvmserver::cli {

// The command-line options of kRun, kSnapshot or kSnaprun.
std::vector<OptionSpec> options_of(unsigned command);

struct MachineJob {
    Options options;     // program, args and snapshot_file are still empty, except with --output
    bool done = false;   // --print-config: nothing more to do
    std::string program; // from the operands, or [run] of the file
    std::vector<std::string> args;
};

// Reads the options file, merges and checks the options. Prints warnings and, in verbose mode, options without effect.
MachineJob prepare(unsigned command, const Invocation& invocation, Context& context);

} // namespace kvmserver::cli
