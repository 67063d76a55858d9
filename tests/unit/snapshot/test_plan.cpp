#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <set>
#include <string>

#include "src/snapshot/plan.hpp"
#include "tests/catch.hpp"
#include "tests/unit/snapshot/files.hpp"

using namespace kvmserver;

namespace {

using Pages = std::vector<std::uint64_t>; // each page's seed

test::Bytes memory_of(const Pages& pages) {
    test::Bytes memory(pages.size() * 4096);
    for (std::size_t i = 0; i < pages.size(); ++i) {
        std::mt19937_64 random(pages[i]);
        for (std::size_t at = 0; at < 4096; at += 8) {
            const std::uint64_t word = random();
            std::memcpy(memory.data() + i * 4096 + at, &word, 8);
        }
    }
    return memory;
}

Pages numbered(std::size_t count) {
    Pages pages(count);
    std::iota(pages.begin(), pages.end(), 1000u);
    return pages;
}

struct Planned {
    std::vector<std::string> chunks;
    std::vector<ChunkInfo> infos;
};

Planned plan_of(const Pages& pages, std::size_t hot_pages) {
    const test::Bytes memory = memory_of(pages);
    std::vector<std::uint32_t> ranks(pages.size()), hot(hot_pages);
    std::iota(ranks.begin(), ranks.end(), 0u);
    std::iota(hot.begin(), hot.end(), 0u);
    Planned out;
    out.infos = plan_chunks(memory, ranks, hot).chunks;
    tinykvm::IoBuffer raw;
    for (const ChunkInfo& chunk : out.infos) {
        gather_pages(chunk, memory, raw);
        out.chunks.emplace_back(reinterpret_cast<const char*>(raw.data()), raw.size());
    }
    return out;
}

// Bytes of `b` that are in no chunk of `a`.
std::size_t new_bytes(const Planned& a, const Planned& b) {
    const std::set<std::string> known(a.chunks.begin(), a.chunks.end());
    std::size_t bytes = 0;
    for (const auto& chunk : b.chunks)
        bytes += known.contains(chunk) ? 0 : chunk.size();
    return bytes;
}

} // namespace

TEST_CASE("pages that come or go change only the chunks around them") {
    for (const std::size_t hot : {std::size_t{0}, std::size_t{3000}}) {
        CAPTURE(hot);
        const Pages pages = numbered(6000);
        Pages changed = pages;
        changed.erase(changed.begin() + 1500);
        changed.insert(changed.begin() + 900, {1, 2, 3});
        changed[1200] = 4;
        const Planned before = plan_of(pages, hot), after = plan_of(changed, hot == 0 ? 0 : hot + 2);
        const ChunkLengths lengths = hot == 0 ? kColdLengths : kHotLengths;
        CHECK(new_bytes(before, after) <= 6 * std::size_t{lengths.most} * 4096);
        CHECK(new_bytes(before, after) > 0);
    }
}

TEST_CASE("chunks have the lengths they may have, in which every page is once") {
    const Planned planned = plan_of(numbered(20000), 10000);
    std::size_t pages = 0, longest = 0;
    for (std::size_t i = 0; i < planned.infos.size(); ++i) {
        const ChunkInfo& chunk = planned.infos[i];
        const ChunkLengths lengths = chunk.hot ? kHotLengths : kColdLengths;
        const bool last = i + 1 == planned.infos.size() || planned.infos[i + 1].hot != chunk.hot;
        CHECK(chunk.pages <= lengths.most);
        longest += chunk.pages == lengths.most;
        CHECK((chunk.pages >= lengths.least || last));
        pages += chunk.pages;
    }
    CHECK(pages == 20000);
    CHECK(longest > 0); // some of that many are without a page that ends them
}

TEST_CASE("hot frames that are apart share no chunk with others") {
    Pages pages = numbered(1000);
    for (std::uint32_t i = 400; i < 600; i += 3)
        pages[i] = pages[i - 300]; // such pages are in both
    const test::Bytes memory = memory_of(pages);
    std::vector<std::uint32_t> ranks(pages.size()), hot(700);
    std::iota(ranks.begin(), ranks.end(), 0u);
    std::iota(hot.begin(), hot.end(), 0u);
    const std::vector<tinykvm::FrameRun> apart{{400, 100}, {500, 200}};
    const Plan plan = plan_chunks(memory, ranks, hot, -1, apart);
    std::size_t frames = 0;
    bool others = true;
    for (const ChunkInfo& chunk : plan.chunks)
        for (const ChunkRun& run : chunk.runs) {
            frames += run.count;
            if (!chunk.hot)
                continue;
            CHECK((run.first + run.count <= 400 || run.first >= 400));
            const bool is_apart = run.first >= 400;
            CHECK((others || is_apart)); // and come after them
            others = !is_apart;
        }
    CHECK(frames == pages.size());
}

TEST_CASE("frames in the order of the cold chunks make each of them one run") {
    constexpr std::uint32_t kMany = 4000, kHot = 200;
    Pages pages = numbered(kMany);
    for (std::uint32_t i = 300; i < kMany; i += 7) // pages that are elsewhere too lie among the others
        pages[i] = pages[i - 50];
    const test::Bytes memory = memory_of(pages);
    std::vector<std::uint32_t> ranks(kMany), hot(kHot);
    std::iota(hot.begin(), hot.end(), 0u);
    for (std::uint32_t i = 0; i < kMany; ++i) // neighbours by address are far apart in memory
        ranks[i] = i * 1001 % kMany;
    const auto order = cold_order(plan_chunks(memory, ranks, hot));
    CHECK(std::set(order.begin(), order.end()).size() == order.size());

    std::vector<std::uint32_t> from = hot; // by the new number
    from.insert(from.end(), order.begin(), order.end());
    std::vector<bool> placed(kMany);
    for (const std::uint32_t frame : from)
        placed[frame] = true;
    for (std::uint32_t frame = 0; frame < kMany; ++frame)
        if (!placed[frame])
            from.push_back(frame);
    REQUIRE(from.size() == kMany);
    test::Bytes moved(memory.size());
    std::vector<std::uint32_t> moved_ranks(kMany);
    for (std::uint32_t to = 0; to < kMany; ++to) {
        std::copy_n(memory.begin() + std::ptrdiff_t{from[to]} * 4096, 4096, moved.begin() + std::ptrdiff_t{to} * 4096);
        moved_ranks[to] = ranks[from[to]];
    }
    const Plan plan = plan_chunks(moved, moved_ranks, hot);
    std::size_t cold = 0;
    for (const ChunkInfo& chunk : plan.chunks)
        if (!chunk.hot) {
            ++cold;
            CHECK(chunk.runs.front().count == chunk.pages);
        }
    CHECK(cold > 5);
}
