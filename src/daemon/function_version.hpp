// A version of a function, whether a process serves it now or not.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "src/common/digest.hpp"
#include "src/daemon/function_settings.hpp"
#include "src/request/scheduler.hpp"

namespace kvmserver::daemon {

class FunctionVersion {
public:
    struct Facts {
        std::string name; // "hello v4"
        std::string function;
        std::uint64_t version = 0;
        Digest snapshot;
        unsigned min = 0, max = 1; // request machines
        std::uint64_t idle_ns = 0; // after so long without a request they are given up
        unsigned queue = 0;
        std::uint64_t queue_ns = 0;
        std::string after_restore; // path of the hook; "": none
        Values values;
        std::string ceilings; // what it is granted at most (ceilings_text)
        std::string tenant;   // whose copies of unpacked pages it gets
    };
    explicit FunctionVersion(Facts facts) : facts_(std::move(facts)) {}
    const Facts& facts() const { return facts_; }

private:
    friend class WorkerPool;
    const Facts facts_;
    // Under the pool's mutex:
    std::optional<request::FunctionId> id_; // the scheduler's; none: it does not know it
    std::string last_failure_;
};

} // namespace kvmserver::daemon
