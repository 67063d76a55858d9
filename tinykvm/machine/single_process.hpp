// What becomes of a program that tries to start a second process, and advice for its user.
#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace tinykvm {

// One line about a refused call (fork, vfork, clone, execve). If known, it names the option that makes this program run
// as one process. `program` is its path. `arguments` are those that it was started with, including a script's name.
// `wanted`: what execve was to start; "" if unknown. `may_be_worker`: it forked when it was ready for connections.
std::string refused_process(std::uint32_t call, const std::string& program, std::span<const std::string> arguments,
                            const std::string& wanted = "", bool may_be_worker = false);

// What a fork does while a program starts, that is until its first connection. Later it is refused.
enum class ForkPolicy {
    refuse,
    workers, // followed if workers_serve() and the program listens: the child goes on in its parent's place
    follow,  // every fork is followed (vfork, which execve follows, is not)
};

// Whether it is a server known to fork workers that accept connections themselves.
bool workers_serve(const std::string& program, std::span<const std::string> arguments);

// One line about a fork that was followed.
std::string followed_fork(const std::string& program, std::span<const std::string> arguments);

bool is_execve(std::uint32_t call); // or execveat

} // namespace tinykvm
