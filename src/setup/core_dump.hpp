// --core-dump: core files of programs that a signal ended.
#pragma once
#include <functional>
#include <string>

#include "src/setup/options.hpp"
#include "tinykvm/machine/machine.hpp"

namespace kvmserver {

// For MachineEnv::on_killed; empty without --core-dump. Opens the folder, so call it before the process enters its
// jail. `name` is the program's name in messages and file names. Throws UserError if the folder cannot be used.
//
// A folder gets kMaxCores files at most, each with kMaxCoreBytes of memory at most. What was left out, and each
// failure, is one line on stderr.
std::function<void(tinykvm::Machine&, int, int, std::uint64_t)> core_dumps(const Options& options,
                                                                           const std::string& name);
inline constexpr unsigned kMaxCores = 10;
inline constexpr std::uint64_t kMaxCoreBytes = 1ull << 30;

// The folders that no program may see: Options::hidden and that of core files, which hold other programs' secrets.
std::vector<std::string> hidden_folders(const Options& options);

} // namespace kvmserver
