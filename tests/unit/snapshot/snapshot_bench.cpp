// Writes a snapshot anew and reads it back: sizes and times (not run by the tests).
//   snapshot_bench SNAPSHOT [LEVEL]      SNAPSHOT may also be a raw image of guest memory
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "src/snapshot/reader.hpp"
#include "src/snapshot/writer.hpp"
#include "tests/unit/snapshot/files.hpp"
#include "tests/unit/snapshot/sample_state.hpp"
#include "tinykvm/base/error.hpp"

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }
double cpu_seconds() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec) + static_cast<double>(usage.ru_utime.tv_usec) / 1e6;
}

struct Input {
    tinykvm::MachineState state;
    std::vector<std::byte> memory;
    std::vector<std::uint32_t> hot;
};

Input read_snapshot(const kvmserver::SnapshotReader& reader) {
    Input input;
    input.state = reader.state();
    input.memory.resize(std::size_t{input.state.frames} * 4096);
    for (std::size_t i = 0; i < reader.chunks().size(); ++i) {
        reader.load_chunk(i, input.memory);
        for (const kvmserver::ChunkRun& run : reader.chunks()[i].runs)
            for (std::uint32_t frame = run.first; reader.chunks()[i].hot && frame < run.first + run.count; ++frame)
                input.hot.push_back(frame);
    }
    return input;
}

Input read_image(const char* path) {
    Input input;
    input.memory = kvmserver::test::read_file(path);
    input.memory.resize((input.memory.size() + 4095) / 4096 * 4096);
    input.state = kvmserver::test::sample_state(static_cast<std::uint32_t>(input.memory.size() / 4096));
    return input;
}

Input read_input(const char* path) {
    try {
        return read_snapshot(kvmserver::SnapshotReader::open(path));
    } catch (const tinykvm::UserError&) {
        return read_image(path);
    }
}

void measure_chunks(const kvmserver::SnapshotReader& reader, std::span<std::byte> image, bool hot) {
    std::vector<double> times;
    double bytes = 0;
    for (std::size_t i = 0; i < reader.chunks().size(); ++i) {
        if (reader.chunks()[i].hot != hot)
            continue;
        double best = 1e9;
        for (int repeat = 0; repeat < 3; ++repeat) {
            const auto start = Clock::now();
            reader.load_chunk(i, image);
            best = std::min(best, seconds_since(start));
        }
        times.push_back(best);
        bytes += static_cast<double>(reader.chunks()[i].raw_bytes());
    }
    if (times.empty())
        return;
    const double sum = std::accumulate(times.begin(), times.end(), 0.0);
    std::printf("%s: %zu chunks, %.1f MB raw; load average %.0f us, longest %.0f us, %.0f MB/s\n", hot ? "hot" : "cold",
                times.size(), bytes / 1e6, sum / static_cast<double>(times.size()) * 1e6,
                *std::max_element(times.begin(), times.end()) * 1e6, bytes / sum / 1e6);
}

} // namespace

int main(int argc, char** argv) {
    if (argc < 2)
        return 2;
    const int level = argc > 2 ? std::atoi(argv[2]) : 0;
    const Input input = read_input(argv[1]);
    const kvmserver::test::TempFolder folder;
    const auto path = folder / "bench.snap";

    auto start = Clock::now();
    double cpu = cpu_seconds();
    const auto summary = kvmserver::write_snapshot(path, input.state, input.memory, input.hot, level);
    std::printf("level %d: %.3f MB of %.1f MB (%u pages, %u zero, %u copies) in %u chunks; %.1f s, %.1f s of CPU\n",
                level, static_cast<double>(summary.file_bytes) / 1e6, static_cast<double>(input.memory.size()) / 1e6,
                summary.stored_pages, summary.zero_pages, summary.copied_pages, summary.chunks, seconds_since(start),
                cpu_seconds() - cpu);
    double open_time = 1e9;
    for (int repeat = 0; repeat < 5; ++repeat) {
        start = Clock::now();
        kvmserver::SnapshotReader::open(path);
        open_time = std::min(open_time, seconds_since(start));
    }
    const auto reader = kvmserver::SnapshotReader::open(path);
    start = Clock::now();
    reader.verify();
    std::printf("open %.2f ms, verify %.0f ms\n", open_time * 1e3, seconds_since(start) * 1e3);
    std::vector<std::byte> image(input.memory.size());
    measure_chunks(reader, image, true);
    measure_chunks(reader, image, false);
    std::puts(image == input.memory ? "same memory" : "MEMORY DIFFERS");
    return image == input.memory ? 0 : 1;
}
