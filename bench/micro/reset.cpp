// Reset against the least that it could be: a memcpy of the pages that a request dirtied.
//
// Both follow a request that wrote to N pages, scattered over an area of memory, on the same request machine. The
// memcpy copies from the same image to the same memory of the machine, page by page in ascending order, as the reset
// does; so caches and TLB are as cold for both. BM_memcpy_pages copies only those N. A request dirties more (stacks,
// the guest kernel, the connection): the `memcpy_us` of BM_reset is for all pages that differ from the image after the
// request, and requests for the one and for the other alternate, so that what else the host does hits both.
#include <benchmark/benchmark.h>

#include <cstring>

#include "bench/micro/function.hpp"
#include "bench/micro/guest/scatter.h"
#include "bench/micro/samples.hpp"

namespace kvmserver::micro {

using namespace tinykvm;

namespace {

constexpr std::uint64_t kSmallArea = 64; // MiB, powers of two

class Dirtied {
public:
    // A machine that has written to `once` pages of the area in its first request, and writes to `count` in each later
    // one.
    Dirtied(std::uint64_t area_mib, std::uint64_t count, std::uint64_t once)
        : path_(path(count)), function_({"pages", std::to_string(area_mib)}), server_(function_.clone()) {
        area_ = server_->request(path(once));
        find_memory();
        const std::uint64_t area_pages = (area_mib << 20) / kPageSize;
        for (std::uint64_t i = 0; i < count; ++i)
            area_frames_.push_back(frame(area_ + scattered_page(i, area_pages) * kPageSize));
        std::sort(area_frames_.begin(), area_frames_.end());
        server_->clean();
        for (int i = 0; i < 5; ++i) {
            request();
            server_->clean();
        }
    }
    void request() { server_->request(path_); }
    Machine& machine() { return server_->machine(); }

    const std::vector<Frame>& area_frames() const { return area_frames_; }
    // After a request: the frames that are not as in the image.
    std::vector<Frame> different() {
        std::vector<Frame> frames;
        for (const FrameRun& run : machine().written_frames())
            for (Frame f = run.first; f < run.first + run.count; ++f)
                if (std::memcmp(own(f), pristine(f), kPageSize) != 0)
                    frames.push_back(f);
        return frames;
    }
    void copy(const std::vector<Frame>& frames) {
        for (const Frame f : frames)
            std::memcpy(own(f), pristine(f), kPageSize);
    }

private:
    static std::string path(std::uint64_t count) { return "/dirty/" + std::to_string(count); }
    Frame frame(std::uint64_t at) { return pte::frame(machine().space().tables().get(GuestVirt(at))); }
    std::byte* own(Frame f) const { return memory_ + std::uint64_t{f} * kPageSize; }
    const std::byte* pristine(Frame f) const { return function_.image().image->data() + std::uint64_t{f} * kPageSize; }
    // Where frame 0 is: the image's frames are one run of host memory.
    void find_memory() {
        std::vector<iovec> run;
        if (!machine().space().gather(GuestVirt(area_), kPageSize, Access::read, run) || run.empty())
            throw std::runtime_error("the area is not where the program says");
        memory_ = static_cast<std::byte*>(run[0].iov_base) - std::uint64_t{frame(area_)} * kPageSize;
    }

    std::string path_;
    Function function_;
    std::unique_ptr<Server> server_;
    std::uint64_t area_;
    std::byte* memory_;
    std::vector<Frame> area_frames_;
};

// once: pages that the machine's first request wrote to; more than N shows what remembering them costs. area: MiB of
// memory that the program has, which should not matter.
void BM_reset(benchmark::State& state) {
    Dirtied dirtied(static_cast<std::uint64_t>(state.range(2)), static_cast<std::uint64_t>(state.range(0)),
                    static_cast<std::uint64_t>(state.range(1)));
    Machine& machine = dirtied.machine();
    dirtied.request();
    const std::vector<Frame> frames = dirtied.different();
    const ResetStats stats = machine.reset();
    machine.prepare();
    Samples resets, prepares, copies, requests;
    for (auto _ : state) {
        requests.add(timed_ns([&] { dirtied.request(); }));
        const std::uint64_t reset_ns = timed_ns([&] { machine.reset(); });
        prepares.add(timed_ns([&] { machine.prepare(); }));
        resets.add(reset_ns);
        state.SetIterationTime(seconds(reset_ns));

        dirtied.request();
        copies.add(timed_ns([&] { dirtied.copy(frames); }));
        machine.reset();
        machine.prepare();
    }
    const double reset_us = resets.median_us(), memcpy_us = copies.median_us();
    state.counters["dirtied"] = static_cast<double>(frames.size());
    state.counters["copied"] = static_cast<double>(stats.pages_copied);
    state.counters["median_us"] = reset_us;
    state.counters["memcpy_us"] = memcpy_us;
    state.counters["over_memcpy"] = reset_us / memcpy_us;
    state.counters["of_bound"] = reset_us / (1.5 * memcpy_us + 5); // acceptance: at most 1
    state.counters["prepare_us"] = prepares.median_us();
    state.counters["request_us"] = requests.median_us();
}

void BM_memcpy_pages(benchmark::State& state) {
    const auto count = static_cast<std::uint64_t>(state.range(0));
    Dirtied dirtied(kSmallArea, count, count);
    Samples copies;
    for (auto _ : state) {
        dirtied.request();
        const std::uint64_t ns = timed_ns([&] { dirtied.copy(dirtied.area_frames()); });
        copies.add(ns);
        state.SetIterationTime(seconds(ns));
        dirtied.machine().reset();
        dirtied.machine().prepare();
    }
    state.counters["median_us"] = copies.median_us();
    state.SetBytesProcessed(state.iterations() * state.range(0) * static_cast<std::int64_t>(kPageSize));
}

void few(benchmark::internal::Benchmark* b) { b->UseManualTime()->Iterations(1000)->Unit(benchmark::kMicrosecond); }
void many(benchmark::internal::Benchmark* b) { b->UseManualTime()->Iterations(100)->Unit(benchmark::kMicrosecond); }

BENCHMARK(BM_memcpy_pages)->Arg(10)->Arg(100)->Arg(1000)->Apply(few);
BENCHMARK(BM_memcpy_pages)->Arg(10'000)->Apply(many);
const std::vector<std::string> names{"", "once", "area"};
BENCHMARK(BM_reset)->ArgNames(names)->Args({10, 10, kSmallArea})->Args({100, 100, kSmallArea})->Apply(few);
BENCHMARK(BM_reset)->ArgNames(names)->Args({1000, 1000, kSmallArea})->Args({10, 10, 512})->Apply(few);
BENCHMARK(BM_reset)->ArgNames(names)->Args({10'000, 10'000, kSmallArea})->Args({10, 10'000, kSmallArea})->Apply(many);

} // namespace
} // namespace kvmserver::micro
