#include "src/snapshot/metadata_checks.hpp"

#include <cmath>

#include "tinykvm/base/guest_addr.hpp"
#include "tinykvm/memory/large_pages.hpp"

namespace kvmserver {
namespace {

constexpr std::uint64_t kAddressEnd = 1ull << 47;
constexpr double kMaxSeconds = 366.0 * 86400; // as on the command line; in nanoseconds it fits 64 bits
constexpr std::uint32_t kMaxFiles = 1 << 20;
constexpr std::size_t kMaxAddressBytes = 128; // sizeof(sockaddr_storage)
constexpr std::uint32_t kAllProtections = 7;

} // namespace

void check_region(const tinykvm::RegionState& region, const JsonPath& place) {
    const bool aligned = tinykvm::page_down(region.begin | region.end) == (region.begin | region.end);
    if (!aligned || region.begin >= region.end || region.end > kAddressEnd || region.prot > kAllProtections)
        place.bad("is not a range of user pages");
}

void check_run(const tinykvm::FrameRun& run, const JsonPath& place, std::uint32_t frames) {
    if (run.count == 0 || run.first >= frames || run.count > frames - run.first)
        place.bad("is outside of guest memory");
}

void check_hot_run(const tinykvm::FrameRun& run, const JsonPath& place, std::uint32_t frames) {
    if (run.first > frames || run.count > frames - run.first)
        place.bad("is outside of guest memory");
}

void check_large_page_count(std::size_t count) {
    if (count > tinykvm::LargePages::kMax)
        JsonPath{&kMachine, "large_pages", 0}.bad("has too many");
}

void check_listener(const tinykvm::ListenerState& listener, const JsonPath& place) {
    if (listener.address.size() > kMaxAddressBytes)
        place.bad("has too long an address");
}

void check_numbers(const tinykvm::MachineState& state) {
    if (state.frames == 0 || state.frames > format::kMaxFrames)
        JsonPath{&kMachine, "frames", 0}.bad("is out of range");
    if (state.page_table_root / tinykvm::kPageSize >= state.frames)
        JsonPath{&kMachine, "page_table_root", 0}.bad("is outside of guest memory");
    if (state.fork > tinykvm::ForkPolicy::always)
        JsonPath{&kMachine, "fork", 0}.bad("is above 3");
    check_limits(state.limits, JsonPath{&kMachine, "limits", 0});
}

void check_limits(const tinykvm::Limits& limits, const JsonPath& place) {
    for (const double seconds :
         {limits.boot_seconds, limits.request_seconds, limits.request_total_seconds, limits.request_cpu_seconds})
        if (!std::isfinite(seconds) || seconds < 0 || seconds > kMaxSeconds)
            place.bad("has an impossible time");
    for (const std::uint64_t bytes :
         {limits.memory, limits.address_space, limits.request_memory, limits.keep_memory, limits.request_arena})
        if (bytes > kAddressEnd)
            place.bad("has more memory than there are addresses");
    if (limits.open_files > kMaxFiles)
        place.bad("has too many open files");
}

} // namespace kvmserver
