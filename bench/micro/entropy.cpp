// What entropy regions cost an invocation: entropy SNAPSHOT... prints a line each, as JSON. bench/unique.py makes the
// snapshots.
//
// Two request machines of the same image, one of which has no regions, are reset and prepared for their next
// invocation in turns, each time with caches as cold as an invocation leaves them. What the one takes longer is what
// the regions cost: to fill them, and to put their pages back.
#include <cstdio>
#include <exception>
#include <numeric>

#include "bench/micro/function.hpp"
#include "bench/micro/samples.hpp"
#include "src/runner/request_machine.hpp"
#include "src/setup/report.hpp"

namespace kvmserver::micro {
namespace {

using namespace tinykvm;

class Clone {
public:
    Clone(Restored& restored, std::shared_ptr<const MachineImage> image, const Options& options)
        : loop_(*restored.setup().listeners, note_line),
          machine_(Machine::clone(restored.setup().env, std::move(image), loop_,
                                  uses_dirty_bits(restored.setup(), options) ? ResetStrategy::dirty_bits
                                                                             : ResetStrategy::working_set)) {}
    void next() {
        resets.add(timed_ns([&] { machine_->reset(); }));
        prepares.add(timed_ns([&] { machine_->prepare(); }));
    }
    Samples resets, prepares;

private:
    EventLoop loop_;
    std::unique_ptr<Machine> machine_;
};

// Touches more than the second-level cache holds.
void cool() {
    static std::vector<std::uint64_t> other(1 << 19);
    for (std::size_t i = 0; i < other.size(); i += 8)
        ++other[i];
}

void measure(const std::filesystem::path& snapshot) {
    constexpr int kRounds = 2000;
    Options options = options_for(snapshot, Cache::none);
    options.permissions.all = true;
    Restored restored(SnapshotReader::open(snapshot), std::make_shared<FolderCache>(options.cache), options,
                      Restored::Sockets::none);
    auto bare = std::make_shared<MachineImage>(*restored.image());
    const auto regions = std::move(bare->entropy);
    bare->entropy.clear();
    Clone with(restored, restored.image(), options), without(restored, bare, options);
    for (int i = 0; i < kRounds; ++i) {
        cool();
        with.next();
        cool();
        without.next();
    }
    std::uint64_t bytes = 0;
    std::vector<std::uint64_t> pages;
    for (const EntropyRegion& region : regions) {
        bytes += region.bytes;
        for (std::uint64_t at = region.at / kPageSize; at <= (region.at + region.bytes - 1) / kPageSize; ++at)
            if (pages.empty() || pages.back() != at)
                pages.push_back(at);
    }
    const double fill = with.prepares.median_us() - without.prepares.median_us(),
                 back = with.resets.median_us() - without.resets.median_us();
    std::printf("{\"snapshot\": \"%s\", \"regions\": %zu, \"bytes\": %llu, \"pages\": %zu, \"fill_us\": %.2f, "
                "\"reset_us\": %.2f, \"prepare_us\": %.2f}\n",
                snapshot.c_str(), regions.size(), static_cast<unsigned long long>(bytes), pages.size(), fill, back,
                with.prepares.median_us());
}

} // namespace
} // namespace kvmserver::micro

int main(int argc, char** argv) {
    try {
        for (int i = 1; i < argc; ++i)
            kvmserver::micro::measure(argv[i]);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "entropy: %s\n", error.what());
        return 1;
    }
    return 0;
}
