// What a program in a request machine pays for what it does all the time. It measures with its own clock, many at once;
// the request around it is not in the figures.
#include <benchmark/benchmark.h>

#include "bench/micro/function.hpp"

namespace kvmserver::micro {
namespace {

void measure(benchmark::State& state, const std::string& kind, std::uint64_t count) {
    static Function function({"calls"});
    static const auto server = function.clone();
    const std::string path = "/" + kind + "/" + std::to_string(count);
    server->request(path); // the first one takes the faults of its pages
    server->clean();
    const std::uint64_t exits = server->machine().exits();
    double best = 1e9;
    for (auto _ : state) {
        const double each = static_cast<double>(server->request(path)) / static_cast<double>(count) / 1e9;
        server->clean();
        state.SetIterationTime(each);
        best = std::min(best, each);
    }
    state.counters["best_ns"] = best * 1e9;
    state.counters["exits"] =
        static_cast<double>(server->machine().exits() - exits) / static_cast<double>(count * state.iterations());
}

// getppid, which the guest kernel answers: acceptance says at most 1.2 us on PVM.
void BM_syscall_inside(benchmark::State& state) { measure(state, "inside", 200'000); }
// getrandom of one byte, for which the machine is left.
void BM_syscall_host(benchmark::State& state) { measure(state, "host", 3'000); }
// clock_gettime by the vDSO.
void BM_clock_read(benchmark::State& state) { measure(state, "clock", 1'000'000); }
// From one thread of the program to the other: one wakes the other and waits.
void BM_futex_switch(benchmark::State& state) { measure(state, "futex", 50'000); }

BENCHMARK(BM_syscall_inside)->UseManualTime()->Iterations(10)->Unit(benchmark::kNanosecond);
BENCHMARK(BM_syscall_host)->UseManualTime()->Iterations(10)->Unit(benchmark::kNanosecond);
BENCHMARK(BM_clock_read)->UseManualTime()->Iterations(10)->Unit(benchmark::kNanosecond);
BENCHMARK(BM_futex_switch)->UseManualTime()->Iterations(10)->Unit(benchmark::kNanosecond);

} // namespace
} // namespace kvmserver::micro
