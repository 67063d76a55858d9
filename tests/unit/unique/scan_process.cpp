// scan_process PID: what the finders find in a process. Stop it first (kill -STOP).
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "src/unique/finder.hpp"
#include "tests/unit/unique/process_memory.hpp"

int main(int argc, char** argv) {
    if (argc != 2)
        return 2;
    const kvmserver::unique::ProcessMemory memory(std::atoi(argv[1]));
    std::size_t bytes = 0;
    for (const auto& run : memory.view().written())
        bytes += run.bytes.size();
    const std::clock_t begin = std::clock();
    const auto [regions, left_out] = kvmserver::unique::find_entropy(memory.view());
    const double took = static_cast<double>(std::clock() - begin) * 1e3 / CLOCKS_PER_SEC;
    for (const auto& region : regions)
        std::printf("%012llx %6llu %s %s\n", static_cast<unsigned long long>(region.at),
                    static_cast<unsigned long long>(region.bytes),
                    region.fill == tinykvm::EntropyFill::random ? "random"
                    : region.fill == tinykvm::EntropyFill::pid  ? "pid"
                                                                : "constant",
                    region.source.c_str());
    std::printf("%zu regions; %.1f ms of CPU time for %.1f MB %s\n", regions.size(), took,
                static_cast<double>(bytes) / 1e6, left_out.c_str());
}
