// Compression of the parts of a snapshot file: plain sections, and chunks with their filter.
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

// How hard to compress. `level` 0 chooses by the size of the whole: see FORMAT.md, "Sizes and speeds".
struct Effort {
    int level = 0;               // a zstd level, 1..22, or 0
    std::uint64_t total_raw = 0; // bytes of all chunks together
    bool operator==(const Effort&) const = default;
};

// Whether chunks are compressed in hardly any time.
bool is_fast(const Effort& effort, bool hot);
// Equal for efforts that compress every chunk alike; fit for a file's name.
std::string effort_name(const Effort& effort);

// The context of one compressing thread. Failures of zstd (only memory) throw std::bad_alloc.
class ChunkCompressor {
public:
    explicit ChunkCompressor(const Effort& effort);
    struct Result {
        Filter filter = Filter::none;
        std::vector<std::byte> stored;
    };
    // `hot`: read before anything can be served, so fast to decompress rather than small.
    Result compress(std::span<const std::byte> raw, bool hot);

private:
    struct Free {
        void operator()(ZSTD_CCtx_s* context) const;
    };
    using Context = std::unique_ptr<ZSTD_CCtx_s, Free>;
    Filter choose(std::span<const std::byte> raw);

    bool fast_hot_;
    Context context_, probe_;
    std::vector<std::byte> filtered_, scratch_;
};

std::vector<std::byte> compress_section(std::span<const std::byte> raw);

// `stored` must decompress to exactly raw.size() bytes, else false. Never writes elsewhere.
bool decompress(std::span<const std::byte> stored, std::span<std::byte> raw);

} // namespace kvmserver
