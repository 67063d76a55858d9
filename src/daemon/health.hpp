// The trial that decides whether a version may go live.
#pragma once
#include <string>

#include "src/common/digest.hpp"
#include "src/daemon/jail_plans.hpp"
#include "src/daemon/request.hpp"
#include "src/store/snapshots/checked_chunks.hpp"
#include "src/store/store.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::daemon {

class Control;

// The version could not be restored, or gave no answer with a status below 500 in time.
class Unhealthy : public tinykvm::UserError {
public:
    Unhealthy(const std::string& why, std::string output);
    const std::string& output() const { return output_; } // what its process and its program printed

private:
    std::string output_;
};

// The version to try, with the values that it would have.
struct Candidate {
    std::string name; // for messages
    std::string function;
    Digest snapshot;
    std::string after_restore; // path of the hook; "": none
    Values values;
    std::string health;         // path to request; "": a successful restore is enough
    Control* control = nullptr; // of the daemon that has processes for it; null: there is none
    std::string executable;     // without a daemon: a kvmserver binary
    std::string ceilings;       // the most that it is granted (ceilings_text)
    std::string tenant;         // see FunctionProgram
    JailSettings jail;
    Examinations* examinations = nullptr;    // never null
    store::CheckedChunks* checked = nullptr; // never null
};

// Restores a machine from the snapshot in the store, in a process as functions have it and with the values that the
// function would have. If the program has nothing to do in that, a trial of the daemon that was the same and that was
// passed a short time ago counts (PassedTrials). Throws Unhealthy.
void require_health(store::Store& store, const Candidate& candidate);

} // namespace kvmserver::daemon
