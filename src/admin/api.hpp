// The API, independent of the transport. The listener calls it for clients, and the command line calls it directly.
#pragma once
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <semaphore>
#include <string>

#include "src/admin/arriving_states.hpp"
#include "src/admin/migrations.hpp"
#include "src/admin/principal.hpp"
#include "src/admin/request.hpp"
#include "src/admin/staged.hpp"
#include "src/admin/store_source.hpp"
#include "src/admin/table.hpp"
#include "src/admin/upload_quota.hpp"
#include "src/daemon/jail_plans.hpp"
#include "src/ops/child.hpp"
#include "src/store/snapshots/checked_chunks.hpp"

namespace kvmserver::daemon {
class Control;
}

namespace kvmserver::admin {

struct ApiOptions {
    daemon::Control* control = nullptr;  // null: nothing is served, and what needs a daemon is refused (503)
    std::string executable = ops::kSelf; // the kvmserver binary that tries new versions
    daemon::JailSettings jail{};         // for these trials
    // Facts about snapshots, shared with the daemon. Null: snapshots are examined by processes of `executable`.
    std::shared_ptr<daemon::Examinations> examinations = {};
    std::string version = {}; // of kvmserver, for people
    // How long an uploaded snapshot is kept that no function names.
    std::chrono::milliseconds staged_for = std::chrono::hours(1);
    UploadLimits uploads = {};
    // A follower of logs is sent an empty line after this long without one.
    std::chrono::milliseconds follow_quiet = std::chrono::minutes(1);
    // Most followers of logs, by TCP and by the socket each. A follower occupies one of ListenerOptions::max_requests
    // for as long as it likes, so half of them stay free for others.
    unsigned max_followers = 32;
};

// Thread-safe. Calls block until they are done.
class Api {
public:
    Api(StoreSource& source, ApiOptions options);

    // Answers the request, with a problem if it fails. Throws only ClientGone.
    void serve(Request& request, std::string_view target, Exchange& exchange);
    // For this process itself: failures are thrown as exceptions. Null if the reply has no body.
    nlohmann::json run(const std::string& method, const std::string& target, const nlohmann::json& body = nullptr,
                       const Headers& headers = {});
    // The same for a reply that is not JSON.
    void run(const std::string& method, const std::string& target, Exchange& exchange, const Headers& headers = {});

    // For the handlers.
    StoreSource& source() { return source_; }
    store::Store& store(); // throws NotFound when there is none yet
    const ApiOptions& options() const { return options_; }
    daemon::Control& control();              // throws Refused (503) when there is none
    void changed();                          // tells the daemon to read the store again
    void superseded(const Digest& snapshot); // removes it once nothing needs it
    Staged& staged() { return staged_; }
    UploadQuota& uploads() { return uploads_; }
    daemon::Examinations& examinations() { return *options_.examinations; }
    // Ends endless replies (followed logs) soon.
    void end_streams() { ending_ = true; }
    bool ending() const { return ending_; }
    // Counts one follower of logs while it exists. The constructor throws Refused (503) if there are too many.
    class Following {
    public:
        Following(Api& api, bool local);
        ~Following() { --count_; }
        Following(const Following&) = delete;
        Following& operator=(const Following&) = delete;

    private:
        std::atomic<unsigned>& count_;
    };
    // Thread-safe; what trials need not read again.
    store::CheckedChunks& checked_chunks() { return checked_chunks_; }
    // Limits trials of new versions: each is a process with a machine.
    std::counting_semaphore<>& trials() { return trials_; }
    Migrations& migrations() { return migrations_; }
    ArrivingStates& arriving_states() { return arriving_states_; }
    std::mutex& deploys() { return deploys_; } // held while totals are counted and a version is added

private:
    void dispatch(Request& request, Exchange& exchange);
    Principal authenticate(const Request& request);

    StoreSource& source_;
    ApiOptions options_;
    Staged staged_;
    UploadQuota uploads_;
    std::atomic<bool> ending_ = false;
    std::atomic<unsigned> followers_[2] = {}; // by TCP, by the Unix socket
    std::counting_semaphore<> trials_{2};
    store::CheckedChunks checked_chunks_;
    std::mutex deploys_;
    ArrivingStates arriving_states_;
    Migrations migrations_; // its thread uses the members above
};

} // namespace kvmserver::admin
