// Advice for the user of a program that tries to start a second process.
#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace tinykvm {

// One line about a refused call (fork, vfork, clone, execve). If known, it names the option that makes this program run
// as one process. `program` is its path. `arguments` are those that it was started with, including a script's name.
// `wanted`: what execve was to start; "" if unknown.
std::string refused_process(std::uint32_t call, const std::string& program, std::span<const std::string> arguments,
                            const std::string& wanted = "");

bool is_execve(std::uint32_t call); // or execveat

} // namespace tinykvm
