// A version of a function, with or without a process.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "src/common/digest.hpp"
#include "src/daemon/function_settings.hpp"
#include "src/daemon/request_log.hpp"
#include "src/request/scheduler.hpp"

namespace kvmserver::daemon {

class FunctionVersion {
public:
    struct Facts {
        std::string name; // "hello v4"
        std::string function;
        std::uint64_t version = 0;
        Digest snapshot;           // at first: see WorkerPool::restore_from()
        unsigned min = 0, max = 1; // request machines
        bool kept = false;         // one machine keeps its state; `max`: connections that it serves at once
        std::uint64_t idle_ns = 0; // before idle machines are stopped
        unsigned queue = 0;
        std::uint64_t queue_ns = 0;
        std::string after_restore; // path of the hook; "": none
        Values values;
        std::string ceilings;                  // the most that it is granted (ceilings_text)
        std::string tenant;                    // whose copies of unpacked pages it gets
        std::shared_ptr<RequestRing> requests; // of all versions of the function; null: nobody wants to know
    };
    explicit FunctionVersion(Facts facts) : facts_(std::move(facts)), snapshot_(facts_.snapshot) {}
    const Facts& facts() const { return facts_; }

private:
    friend class WorkerPool;
    const Facts facts_;
    // Guarded by the pool's mutex:
    std::optional<request::FunctionId> id_; // the scheduler's id; nothing: unknown to it
    std::string last_failure_;
    Digest snapshot_; // that its next process is restored from
};

} // namespace kvmserver::daemon
