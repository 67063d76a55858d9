// What becomes of a program that tries to start a second process, and advice for its user.
#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace tinykvm {

// What a program may have forked for.
enum class ForkMoment {
    other,
    start,      // until its first connection
    ready,      // the same, and it listens: its children may be workers
    connection, // in a machine that is reset once this connection is closed: its child may answer it
    warm_up,    // for a connection as well, but the machine goes on: a warm-up, or one that keeps its state
};

// What a fork does: whether the child goes on in its parent's place.
enum class ForkPolicy : std::uint32_t {
    refuse = 0,
    known = 1,  // followed if children_serve()
    follow = 2, // followed while the program starts (not vfork, which execve follows)
    always = 3, // the same, and in each connection, if the machine is reset after it
};
constexpr bool follows(ForkPolicy policy, ForkMoment moment) {
    const bool starts = moment == ForkMoment::start || moment == ForkMoment::ready;
    return starts ? policy >= ForkPolicy::follow : moment == ForkMoment::connection && policy == ForkPolicy::always;
}

// One line about a refused call (fork, vfork, clone, execve). If known, it names the option that makes this program run
// as one process. `program` is its path. `arguments` are those that it was started with, including a script's name.
// `wanted`: what execve was to start; "" if unknown.
std::string refused_process(std::uint32_t call, const std::string& program, std::span<const std::string> arguments,
                            const std::string& wanted = "", ForkMoment moment = ForkMoment::other,
                            ForkPolicy policy = ForkPolicy::refuse);

// Whether it is a server known to fork, at this moment, workers that accept connections themselves, or a child that
// answers the connection.
bool children_serve(ForkMoment moment, const std::string& program, std::span<const std::string> arguments);

// One line about a fork that was followed.
std::string followed_fork(ForkMoment moment, const std::string& program, std::span<const std::string> arguments);

bool is_execve(std::uint32_t call); // or execveat

} // namespace tinykvm
