// Compression of the parts of a snapshot file: sections as they are, and chunks with a filter.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/snapshot/filter.hpp"

struct ZSTD_CCtx_s;

namespace kvmserver {

// Takes hardly any time: every chunk as a hot chunk of a large program. For a snapshot that is compressed anew soon
// (recompress.hpp).
inline constexpr int kQuickLevel = 100;

// How hard to compress. `level` 0 chooses by the total size: see FORMAT.md, "Sizes and speeds".
struct Effort {
    int level = 0;               // a zstd level, 1..22, or 0, or kQuickLevel
    std::uint64_t total_raw = 0; // bytes of all chunks together
    bool operator==(const Effort&) const = default;
};

// Whether chunks are compressed at the fast level, which takes hardly any time.
bool is_fast(const Effort& effort, bool hot);
// Equal for efforts that compress every chunk alike; usable in a file name.
std::string effort_name(const Effort& effort);

// Compression context of one thread. zstd fails only when out of memory: throws std::bad_alloc.
class ChunkCompressor {
public:
    explicit ChunkCompressor(const Effort& effort);
    struct Result {
        Filter filter = Filter::none;
        std::vector<std::byte> stored;
    };
    // `hot`: the chunk is read before anything can be served, so optimise for fast decompression, not for size.
    Result compress(std::span<const std::byte> raw, bool hot);

private:
    struct Free {
        void operator()(ZSTD_CCtx_s* context) const;
    };
    using Context = std::unique_ptr<ZSTD_CCtx_s, Free>;
    Filter choose(std::span<const std::byte> raw);

    Effort effort_;
    Context context_, probe_;
    std::vector<std::byte> filtered_, scratch_;
};

// Compresses a section as one zstd frame.
std::vector<std::byte> compress_section(std::span<const std::byte> raw);

// False unless `stored` decompresses to exactly raw.size() bytes. Never writes outside of `raw`.
bool decompress(std::span<const std::byte> stored, std::span<std::byte> raw);
// Frees what such calls keep on this thread for the next one: 95 KB.
void drop_decompressor();

} // namespace kvmserver
