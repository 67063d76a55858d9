// A machine's requests as the daemon hands them to it.
#pragma once
#include <cstdint>

#include "src/link/machine_link.hpp"
#include "src/runner/arrivals.hpp"
#include "src/runner/stop.hpp"

namespace kvmserver {

class ChannelArrivals final : public ArrivalSource {
public:
    // `listener`: of the program, whose connections these are to be. The time since `begin_ns` (0: none) is
    // told with the first `ready`.
    ChannelArrivals(int channel, std::uint32_t listener, std::uint64_t begin_ns, const Stopper& stop);
    bool next(Arrival& out) override;
    void served(const Served& served) override;

private:
    int channel_;
    std::uint64_t begin_ns_;
    std::uint32_t listener_;
    const Stopper& stop_;
    link::Message ready_;
};

} // namespace kvmserver
