// The API, without what carries its requests: the listener calls it for clients, the command line for itself.
#pragma once
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <semaphore>
#include <string>

#include "src/admin/principal.hpp"
#include "src/admin/request.hpp"
#include "src/admin/staged.hpp"
#include "src/admin/store_source.hpp"
#include "src/admin/table.hpp"
#include "src/admin/upload_quota.hpp"
#include "src/daemon/jail_plans.hpp"
#include "src/ops/child.hpp"

namespace kvmserver::daemon {
class Control;
}

namespace kvmserver::admin {

struct ApiOptions {
    daemon::Control* control = nullptr;  // null: nothing is served, so what needs a daemon is refused (503)
    std::string executable = ops::kSelf; // the kvmserver that tries new versions
    daemon::JailSettings jail{};         // of it
    // What is known of snapshots, shared with what serves; null: by processes of `executable`.
    std::shared_ptr<daemon::Examinations> examinations = {};
    std::string version = {}; // of kvmserver, for people
    // How long a snapshot that was brought stays when nothing names it.
    std::chrono::milliseconds staged_for = std::chrono::hours(1);
    UploadLimits uploads = {};
    // A follower of logs is sent an empty line when there was nothing for so long.
    std::chrono::milliseconds follow_quiet = std::chrono::minutes(1);
    // Who follows logs holds one of the listener's places without end: half of
    // ListenerOptions::most_requests, by TCP and by the socket each, are for others.
    unsigned most_followers = 32;
};

// Thread-safe; calls block as long as they take.
class Api {
public:
    Api(StoreSource& source, ApiOptions options);

    // Answers, if only with a problem. Throws nothing but ClientGone.
    void serve(Request& request, std::string_view target, Exchange& exchange);
    // For this process itself: what would be a problem is thrown as it is. Null when the reply has no body.
    nlohmann::json run(const std::string& method, const std::string& target, const nlohmann::json& body = nullptr,
                       const Headers& headers = {});
    // The same for a reply that is not JSON.
    void run(const std::string& method, const std::string& target, Exchange& exchange, const Headers& headers = {});

    // For the handlers.
    StoreSource& source() { return source_; }
    store::Store& store(); // throws NotFound when there is none yet
    const ApiOptions& options() const { return options_; }
    daemon::Control& control(); // throws Refused (503) when there is none
    void changed();             // what is served shall be looked at again
    Staged& staged() { return staged_; }
    UploadQuota& uploads() { return uploads_; }
    daemon::Examinations& examinations() { return *options_.examinations; }
    // Replies without an end (logs that are followed) end soon.
    void end_streams() { ending_ = true; }
    bool ending() const { return ending_; }
    // A place of one that follows; throws Refused (503) when there is none left.
    class Following {
    public:
        Following(Api& api, bool local);
        ~Following() { --count_; }
        Following(const Following&) = delete;
        Following& operator=(const Following&) = delete;

    private:
        std::atomic<unsigned>& count_;
    };
    // Trials of new versions: each is a process with a machine, so a few at a time.
    std::counting_semaphore<>& trials() { return trials_; }
    std::mutex& deploys() { return deploys_; } // while totals are counted and a version is added

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
    std::mutex deploys_;
};

} // namespace kvmserver::admin
