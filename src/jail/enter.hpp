// Putting this very process into a jail. Both parts are to be called while it has no thread but this one.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "src/jail/plan.hpp"
#include "src/jail/system_calls.hpp"
#include "src/jail/walls.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::jail {

class Jail {
public:
    // What can be done ahead, before it is known what is to be left open: nothing of a stranger's may have been read.
    // `apart`: the process was started by spawn() in namespaces of its own.
    Jail(Mode mode, bool apart);

    // The rest: afterwards only what the plan names is there. Throws UserError (not_permitted) with Mode::strict when a wall is missing.
    // Descriptors that are open stay so.
    void enter(const Plan& plan);

    const std::vector<Missing>& missing() const { return missing_; }

private:
    void miss(Wall wall, const std::string& what); // with errno
    void own_file_system(const Plan& plan);
    void give_up_ahead();
    void drop_rights();

    Mode mode_;
    bool apart_;
    bool user_namespace_ = false;
    unsigned user_ = 0;         // that it becomes; 0: it stays who it is
    tinykvm::UniqueFd user_map_; // a user namespace in which files of ours are that user's
    tinykvm::UniqueFd proc_;     // a procfs that shows only this process
    tinykvm::UniqueFd network_; // the host's, while it has one of its own
    std::optional<SystemCalls> system_calls_;
    std::vector<Missing> missing_;
};

} // namespace kvmserver::jail
