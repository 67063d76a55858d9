// Micro-benchmarks of machines (Google Benchmark).
//   micro [--benchmark_filter=REGEX] [--benchmark_format=json] ...
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <cstdio>

#include "tinykvm/base/error.hpp"
#include "tinykvm/kvm/probe.hpp"

namespace {

// A thousand machines have some three thousand descriptors.
void raise_file_limit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        ::setrlimit(RLIMIT_NOFILE, &limit);
    }
}

} // namespace

int main(int argc, char** argv) {
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv))
        return static_cast<int>(tinykvm::ExitCode::usage);
    raise_file_limit();
    try {
        benchmark::AddCustomContext("kvm_host", tinykvm::kvm::host_kind(tinykvm::kvm::Kvm::open()).name());
        benchmark::RunSpecifiedBenchmarks();
        benchmark::Shutdown();
    } catch (const tinykvm::UserError& error) {
        std::fprintf(stderr, "micro: %s\n", error.what());
        return static_cast<int>(error.code());
    } catch (const std::exception& error) {
        std::fprintf(stderr, "micro: %s\n", error.what());
        return 1;
    }
    return 0;
}
