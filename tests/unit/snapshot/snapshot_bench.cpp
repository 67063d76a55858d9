// Writes a raw memory image as a snapshot and reads it back: sizes and times (not run by the tests).
//   snapshot_bench IMAGE [LEVEL [HOT_FRAMES]]
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "src/snapshot/reader.hpp"
#include "src/snapshot/writer.hpp"
#include "tests/unit/snapshot/sample_state.hpp"
#include "tinykvm/base/mapping.hpp"

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }
double cpu_seconds() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec) + static_cast<double>(usage.ru_utime.tv_usec) / 1e6;
}

tinykvm::Mapping map_image(const char* path) {
    const tinykvm::UniqueFd fd(::open(path, O_RDONLY | O_CLOEXEC));
    const off_t size = fd ? ::lseek(fd.get(), 0, SEEK_END) : 0;
    if (size <= 0 || size % 4096 != 0)
        throw std::runtime_error("the image must have whole pages");
    return tinykvm::Mapping::map(static_cast<std::size_t>(size), PROT_READ, MAP_PRIVATE, fd.get(), 0, path);
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
    const int level = argc > 2 ? std::atoi(argv[2]) : 0;
    const auto hot_frames = static_cast<std::uint32_t>(argc > 3 ? std::atoi(argv[3]) : 0);
    const auto memory = map_image(argv[1]);
    auto state = kvmserver::test::sample_state(static_cast<std::uint32_t>(memory.size() / 4096));
    std::vector<std::uint32_t> hot;
    for (std::uint32_t i = 0; i < hot_frames; ++i) // runs of 4 all over the image
        hot.push_back((i / 4 * 61 % (state.frames / 4)) * 4 + i % 4);
    const std::string path = std::string(argv[1]) + ".snap";

    auto start = Clock::now();
    double cpu = cpu_seconds();
    const auto summary = kvmserver::write_snapshot(path, state, memory.bytes(), hot, level);
    std::printf("level %d: %.3f MB of %.1f MB (%u pages, %u zero, %u copies) in %u chunks; %.1f s, %.1f s of CPU\n", level,
                static_cast<double>(summary.file_bytes) / 1e6, static_cast<double>(memory.size()) / 1e6,
                summary.stored_pages, summary.zero_pages, summary.copied_pages, summary.chunks, seconds_since(start),
                cpu_seconds() - cpu);
    double open_time = 1e9;
    for (int repeat = 0; repeat < 5; ++repeat) {
        start = Clock::now();
        kvmserver::SnapshotReader::open(path);
        open_time = std::min(open_time, seconds_since(start));
    }
    const auto reader = kvmserver::SnapshotReader::open(path);
    const auto image = tinykvm::Mapping::map(memory.size(), PROT_READ | PROT_WRITE,
                                             MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0, "image");
    start = Clock::now();
    reader.verify();
    std::printf("open %.2f ms, verify %.0f ms\n", open_time * 1e3, seconds_since(start) * 1e3);
    measure_chunks(reader, image.bytes(), true);
    measure_chunks(reader, image.bytes(), false);
    const bool same = std::memcmp(memory.data(), image.data(), memory.size()) == 0;
    std::puts(same ? "same memory" : "MEMORY DIFFERS");
    return same ? 0 : 1;
}
