// How long etcd may take, and how much it may send.
#pragma once
#include <chrono>
#include <cstddef>

namespace kvmserver::etcd {

struct Limits {
    std::chrono::milliseconds connect{2000};
    std::chrono::milliseconds request{5000}; // of a try at one endpoint, connecting included
    // After so long without anything from a watch we ask its endpoint whether it still serves.
    std::chrono::milliseconds watch_check{5000};
    // etcd tells its progress every 10 minutes even if nothing changes (progress_notify): a watch that is silent for
    // longer than this is broken.
    std::chrono::milliseconds watch_silence{15 * 60 * 1000};
    std::size_t reply_bytes = 64 << 20; // of a reply, and of a line of a watch
};

} // namespace kvmserver::etcd
