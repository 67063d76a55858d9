// A version of a function, with or without a process.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/common/digest.hpp"
#include "src/daemon/function_settings.hpp"
#include "src/daemon/request_log.hpp"
#include "src/request/scheduler.hpp"
#include "src/store/functions/moved.hpp"
#include "src/store/snapshots/saved_state.hpp"

namespace kvmserver::daemon {

// What most versions of very many have in common: nothing of it. Equal ones can be one.
struct Given {
    std::string after_restore;      // path of the hook; "": none
    std::string before_snapshot;    // the same
    std::optional<TcpSettings> tcp; // nothing: HTTP
    Sticky sticky;                  // if there are several machines that keep their state
    Values values;
    std::string ceilings;              // the most that it is granted (ceilings_text)
    std::string tenant;                // whose copies of unpacked pages it gets
    std::string storage;               // the function that it reaches in memory; "": none
    std::optional<store::Moved> moved; // another daemon serves it
    bool operator==(const Given&) const = default;
};
class SharedGiven {
public:
    SharedGiven() : SharedGiven(Given()) {}
    explicit SharedGiven(Given given) : given_(std::make_shared<const Given>(std::move(given))) {}
    const Given& operator*() const { return *given_; }
    const Given* operator->() const { return given_.get(); }
    bool operator==(const SharedGiven& other) const { return given_ == other.given_ || *given_ == *other.given_; }

private:
    std::shared_ptr<const Given> given_;
};

class FunctionVersion {
public:
    struct Facts {
        std::string function;
        std::int64_t created = 0; // of the function: ms since 1970
        std::uint64_t version = 0;
        Digest snapshot;           // at first: see WorkerPool::restore_from()
        unsigned min = 0, max = 1; // request machines
        bool kept = false;     // it has one machine, which keeps its state; `max`: connections that it serves at once
        bool suspends = false; // then: when it is idle, its state is saved, and it goes on from there
        unsigned machines = 1; // such machines, each with a FunctionVersion; `machine`: which of them this is
        unsigned machine = 1;
        std::uint64_t idle_ns = 0;   // before idle machines are stopped
        std::uint64_t linger_ns = 0; // before the process of one ends that is suspended then
        unsigned queue = 0;
        unsigned rest_after_ms = 0; // without a request, a request machine gives its memory back; 0: never
        std::uint64_t queue_ns = 0;
        SharedGiven given;
        bool operator==(const Facts&) const = default;
        // "hello v4", "hello v4 machine 2"
        std::string name() const {
            return function + " v" + std::to_string(version) +
                   (machines > 1 ? " machine " + std::to_string(machine) : "");
        }
    };
    using Others = std::vector<std::shared_ptr<FunctionVersion>>;
    // Tells its machine's saved state from all others. A machine that was given other values begins anew.
    std::string state_id() const;
    // The state of its machine, as store::SavedState::claim().
    std::optional<store::SavedState> claim_state(std::shared_ptr<store::Folder> folder, int milliseconds) const;
    // `requests`: those of the function, if there are any yet. `others`: of the first of several machines.
    explicit FunctionVersion(Facts facts, std::shared_ptr<RequestRing> requests = nullptr, Others others = {})
        : facts_(std::move(facts)),
          others_(others.empty() ? nullptr : std::make_unique<const Others>(std::move(others))),
          requests_(std::move(requests)) {}
    const Facts& facts() const { return facts_; }
    // The version's machines beside this one, if this is the first of several. Only the first is in the table.
    std::span<const std::shared_ptr<FunctionVersion>> others() const {
        return others_ ? std::span(*others_) : std::span<const std::shared_ptr<FunctionVersion>>();
    }
    // Of 1 to Facts::machines, each in turn.
    unsigned next_machine() { return next_machine_++ % facts_.machines + 1; }
    // The requests of all versions of the function. Most functions of very many have none, so the ring is made when
    // there is one. Thread-safe.
    RequestRing& requests(RequestLog& log) {
        std::call_once(has_requests_, [&] {
            if (!requests_)
                requests_ = log.ring(facts_.function, facts_.created);
        });
        return *requests_;
    }

private:
    friend class WorkerPool;
    const Facts facts_;
    const std::unique_ptr<const Others> others_; // most of very many have none
    std::atomic<unsigned> next_machine_{0};
    std::once_flag has_requests_;
    std::shared_ptr<RequestRing> requests_;
    // Guarded by the pool's mutex:
    std::optional<request::FunctionId> id_;     // the scheduler's id; nothing: unknown to it
    bool retired_ = false;                      // it is no longer routed to: what its machine keeps is not saved
    bool chunks_away_ = false;                  // last_failure_: the bucket with its chunks was not reached
    std::unique_ptr<const store::Moved> moved_; // it has moved since
    // Most of very many have neither, so they take the room of a pointer.
    std::unique_ptr<const std::string> last_failure_;
    std::unique_ptr<const Digest> later_snapshot_; // that its next process is restored from, in place of the first
};

// Of a version: the one that it is known by, and those beside it.
template <class Fn>
void for_each_machine(const std::shared_ptr<FunctionVersion>& version, const Fn& fn) {
    fn(version);
    for (const auto& other : version->others())
        fn(other);
}

} // namespace kvmserver::daemon
