// The daemon's side of the template of function processes (src/daemon/function_template.hpp).
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>

#include "src/jail/spawn.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::daemon {

// What the new process gets: descriptors that stay the caller's. `group`: -1 for none.
struct ForkWanted {
    int out, err, control, group;
    std::uint64_t ahead_bytes;
};

// Thread-safe.
class TemplateProcess {
public:
    // Nothing is started before the first fork().
    explicit TemplateProcess(jail::Mode mode) : mode_(mode) {}
    // A new process, a child of this one. Nothing if that fails: then it must be started in another way, with other
    // descriptors. A template that ended in the middle may have left a process that has these, and reads from them.
    jail::Spawned fork(const ForkWanted& wanted);
    ~TemplateProcess();

private:
    void start();
    void end();
    enum class Asked { answered, never, lost }; // lost: it has the descriptors, and cannot be used any more
    Asked ask(const ForkWanted& wanted, jail::Spawned& spawned);

    const jail::Mode mode_;
    std::mutex mutex_; // guards the following
    jail::Spawned process_;
    tinykvm::UniqueFd control_;
    unsigned forks_ = 0; // of this one
    bool useless_ = false;
};

} // namespace kvmserver::daemon
