// What it takes to get a machine: out of a snapshot's file, out of an image, and when there are many already.
#include <benchmark/benchmark.h>

#include <fstream>

#include "bench/micro/function.hpp"
#include "bench/micro/samples.hpp"

namespace kvmserver::micro {
namespace {

Program with_heap(std::int64_t mib) { return {"pages", std::to_string(mib), "random"}; }

double mib_of(const std::filesystem::path& file) {
    return static_cast<double>(std::filesystem::file_size(file)) / (1 << 20);
}

// Of the whole host: what a machine takes of the kernel is in no figure of this process. Only the difference that many
// machines make means anything: the kernel keeps some memory of those before them.
double available_mib() {
    std::ifstream info("/proc/meminfo");
    for (std::string name, rest; info >> name; std::getline(info, rest))
        if (double kib; name == "MemAvailable:" && info >> kib)
            return kib / 1024;
    return 0;
}

// From a restored image to a machine that is ready for its first request. Its VM is made as well: the one that is made
// ahead of a restore has been taken.
void BM_clone(benchmark::State& state) {
    Function function(with_heap(state.range(0)));
    function.clone()->request("/dirty/0");
    Samples clones, first, destroyed;
    for (auto _ : state) {
        std::unique_ptr<Server> server;
        const std::uint64_t ns = timed_ns([&] { server = function.clone(); });
        clones.add(ns);
        state.SetIterationTime(seconds(ns));
        first.add(timed_ns([&] { server->request("/dirty/0"); }));
        destroyed.add(timed_ns([&] { server.reset(); }));
    }
    state.counters["median_us"] = clones.median_us();
    state.counters["first_request_us"] = first.median_us();
    state.counters["destroy_us"] = destroyed.median_us();
}

// From opening the file (in the page cache) to a machine that is ready for its first request, as snaprun does it. The
// first request is counted apart, so that work put off until then is seen. kept:0 unpacks the hot part, kept:1 finds it
// in the cache folder. The heap is touched and incompressible.
void BM_restore(benchmark::State& state) {
    const auto& snapshot = snapshot_of(with_heap(state.range(0)));
    const Options options = options_for(snapshot, state.range(1) ? Cache::kept : Cache::none);
    Samples restores, opened, first;
    for (auto _ : state) {
        std::unique_ptr<Function> function;
        std::unique_ptr<Server> server;
        const std::uint64_t open_ns = timed_ns([&] { function = std::make_unique<Function>(snapshot, options); });
        const std::uint64_t clone_ns = timed_ns([&] { server = function->clone(); });
        restores.add(open_ns + clone_ns);
        opened.add(open_ns);
        state.SetIterationTime(seconds(open_ns + clone_ns));
        first.add(timed_ns([&] { server->request("/dirty/0"); }));
    }
    state.counters["median_us"] = restores.median_us();
    state.counters["image_us"] = opened.median_us(); // the rest is the clone
    state.counters["first_request_us"] = first.median_us();
    state.counters["file_mib"] = mib_of(snapshot);
}

// The next machine while so many are alive in the process, each of which has served a request.
void BM_create(benchmark::State& state) {
    Function function(with_heap(1));
    const double before = available_mib();
    std::vector<std::unique_ptr<Server>> alive;
    while (static_cast<std::int64_t>(alive.size()) < state.range(0)) {
        alive.push_back(function.clone());
        alive.back()->request("/dirty/10");
        alive.back()->clean();
    }
    if (alive.size() >= 1000)
        state.counters["kib_each"] = (before - available_mib()) * 1024 / static_cast<double>(alive.size());
    Samples created, destroyed;
    for (auto _ : state) {
        std::unique_ptr<Server> next;
        const std::uint64_t ns = timed_ns([&] { next = function.clone(); });
        created.add(ns);
        state.SetIterationTime(seconds(ns));
        next->request("/dirty/10");
        destroyed.add(timed_ns([&] { next.reset(); }));
    }
    state.counters["median_us"] = created.median_us();
    state.counters["destroy_us"] = destroyed.median_us();
}

void starts(benchmark::internal::Benchmark* b, int iterations) {
    b->UseManualTime()->Iterations(iterations)->Unit(benchmark::kMicrosecond);
}

BENCHMARK(BM_clone)->Arg(1)->Arg(100)->Apply([](auto* b) { starts(b, 100); });
BENCHMARK(BM_restore)->ArgNames({"", "kept"})->ArgsProduct({{1, 10, 100, 500}, {0, 1}})->Apply([](auto* b) {
    starts(b, 20);
});
BENCHMARK(BM_create)->Arg(1)->Arg(10)->Arg(100)->Arg(1000)->Apply([](auto* b) { starts(b, 100); });

} // namespace
} // namespace kvmserver::micro
