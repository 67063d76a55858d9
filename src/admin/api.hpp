// The API, without what carries its requests: the listener calls it for clients, the command line for itself.
#pragma once
#include <atomic>
#include <nlohmann/json.hpp>
#include <string>

#include "src/admin/principal.hpp"
#include "src/admin/request.hpp"
#include "src/admin/staged.hpp"
#include "src/admin/store_source.hpp"
#include "src/admin/table.hpp"
#include "src/ops/child.hpp"

namespace kvmserver::daemon {
class Control;
}

namespace kvmserver::admin {

struct ApiOptions {
    daemon::Control* control = nullptr;  // null: nothing is served, so what needs a daemon is refused (503)
    std::string executable = ops::kSelf; // the kvmserver that tries new versions
    std::string trial_folder = "/";      // that the relative paths of their manifests are seen from
    std::string version;                 // of kvmserver, for people
};

// Thread-safe; calls block as long as they take.
class Api {
public:
    Api(StoreSource& source, ApiOptions options) : source_(source), options_(std::move(options)) {}

    // Answers, if only with a problem. Throws nothing but ClientGone.
    void serve(Request& request, std::string_view target, Exchange& exchange);
    // For this process itself: what would be a problem is thrown as it is. Null when the reply has no body.
    nlohmann::json run(const std::string& method, const std::string& target,
                       const nlohmann::json& body = nullptr, const Headers& headers = {});
    // The same for a reply that is not JSON.
    void run(const std::string& method, const std::string& target, Exchange& exchange,
             const Headers& headers = {});

    // For the handlers.
    StoreSource& source() { return source_; }
    store::Store& store(); // throws NotFound when there is none yet
    const ApiOptions& options() const { return options_; }
    daemon::Control& control(); // throws Refused (503) when there is none
    void changed();             // what is served shall be looked at again
    Staged& staged() { return staged_; }
    // Replies without an end (logs that are followed) end soon.
    void end_streams() { ending_ = true; }
    bool ending() const { return ending_; }

private:
    void dispatch(Request& request, Exchange& exchange);
    Principal authenticate(const Request& request);

    StoreSource& source_;
    ApiOptions options_;
    Staged staged_;
    std::atomic<bool> ending_ = false;
};

} // namespace kvmserver::admin
