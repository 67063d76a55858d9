// Putting this very process into a jail. Both parts are to be called while it has no thread but this one.
#pragma once
#include <cstdint>
#include <future>
#include <string>
#include <vector>

#include "src/jail/plan.hpp"
#include "src/jail/system_calls.hpp"
#include "src/jail/walls.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::jail {

// Where the process's namespaces come from.
enum class Namespaces : std::uint8_t {
    spawned, // spawn() gave it its own
    hosts,   // spawn() could not: it has the host's, and cannot get others
    made,    // it makes them when it enters, but for that of processes, which only a new process can be in
          // (pid_namespaces(7)): it sees its own folder of /proc only, and no call that it may make reaches another by
          // number. It stays its user's; root keeps its rights to files and to low ports, unless all walls must stand.
};

class Jail {
public:
    // What can be done ahead, before it is known what is to be left open: nothing of a stranger's may have been read.
    Jail(Mode mode, Namespaces namespaces);

    // The rest: afterwards only what the plan names is there. Throws UserError (not_permitted) with Mode::strict when a
    // wall is missing. Descriptors that are open stay so.
    void enter(const Plan& plan);

    const std::vector<Missing>& missing() const { return missing_; }

private:
    void miss(Wall wall, const std::string& what); // with errno
    void make_namespaces();
    void own_file_system(const Plan& plan);
    void give_up_ahead();
    void drop_rights();

    Mode mode_;
    Namespaces namespaces_;
    bool user_namespace_ = false;
    bool stays_root_ = false;
    unsigned user_ = 0;          // that it becomes; 0: it stays who it is
    tinykvm::UniqueFd user_map_; // a user namespace in which files of ours are that user's
    tinykvm::UniqueFd proc_;     // a procfs that shows only this process, or its folder in one
    tinykvm::UniqueFd network_;  // the host's, while it has one of its own
    std::future<SystemCalls>
        system_calls_; // of `made`: worked out by another thread, which has ended before the walls stand
    std::vector<Missing> missing_;
};

} // namespace kvmserver::jail
