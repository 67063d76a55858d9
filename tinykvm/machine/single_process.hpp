// What to tell who starts a program that wants to be several processes.
#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace tinykvm {

// One line about a call (fork, vfork, clone, execve) that was refused, with the option that makes this program one
// process, where it is known. `program` is its path, `arguments` those that it was started with (a script's name is
// among them).
std::string refused_process(std::uint32_t call, const std::string& program, std::span<const std::string> arguments);

} // namespace tinykvm
