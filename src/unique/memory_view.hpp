// A read-only view of the memory of a quiescent machine by guest addresses, for finding random state in it.
//
// What is read was written by the guest: pointers may lead anywhere, so every read says whether all of it was there.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tinykvm/base/guest_addr.hpp"
#include "tinykvm/base/mapping.hpp"

namespace kvmserver::unique {

// One mapping of the program, as /proc/PID/maps would list it, unless it has no rights. Neighbours with equal rights
// and name are one. Most of a large mapping may never have been touched: scan MemoryView::written() instead of `bytes`.
struct Area {
    tinykvm::GuestVirt begin, end;    // page-aligned
    std::uint32_t prot = 0;           // PROT_READ 1, PROT_WRITE 2, PROT_EXEC 4
    std::string name;                 // the path of the file it was mapped from, "[stack]", "[heap]" or ""
    std::span<const std::byte> bytes; // end - begin of them, on a page boundary; zero where the program has no page yet
    bool writable() const { return (prot & 2) != 0; }
};

// A run of pages of one writable area that are not all zero.
struct Written {
    tinykvm::GuestVirt begin; // page-aligned
    std::span<const std::byte> bytes;
    // As words, for finders that scan for pointers and lengths.
    std::span<const std::uint64_t> words() const {
        return {reinterpret_cast<const std::uint64_t*>(bytes.data()), bytes.size() / sizeof(std::uint64_t)};
    }
};

struct Range {
    tinykvm::GuestVirt begin, end;
};

// Thrown by reading when too much time has passed: the memory was made to keep finders busy.
struct OutOfTime {};

class MemoryView {
public:
    MemoryView() = default;
    // All in the order of their addresses, not overlapping; what their bytes point to outlives the view. `own`: pages
    // that the program alone has and may write to, neighbours as one.
    MemoryView(std::vector<Area> areas, std::vector<Written> written, std::vector<Range> own)
        : areas_(std::move(areas)), written_(std::move(written)), own_(std::move(own)) {}
    // All writable pages are there.
    MemoryView(std::vector<Area> areas, std::vector<Written> written);

    const std::vector<Area>& areas() const { return areas_; }
    // All writable memory that is not zero, in runs: what finders scan.
    const std::vector<Written>& written() const { return written_; }
    // The area that holds the address; null when there is none.
    const Area* area_at(tinykvm::GuestVirt at) const;
    // `count` bytes at `at`, all in one area; empty when they are not there.
    std::span<const std::byte> bytes(tinykvm::GuestVirt at, std::size_t count) const;
    template <class T>
    requires std::is_trivially_copyable_v<T> std::optional<T> value(tinykvm::GuestVirt at)
    const {
        const auto from = bytes(at, sizeof(T));
        if (from.empty())
            return std::nullopt;
        T out;
        std::memcpy(&out, from.data(), sizeof(T));
        return out;
    }
    // The text at `at` up to its NUL, which must come within `most` bytes; "" when it is not there.
    std::string_view text(tinykvm::GuestVirt at, std::size_t most = 256) const;
    // Whether [at, at + count) is the program's own writable memory, and is there: it was touched.
    bool writable(tinykvm::GuestVirt at, std::size_t count) const;
    // The parts of [at, at + count) for which that is so.
    std::vector<Range> writable_parts(tinykvm::GuestVirt at, std::size_t count) const;
    // Reading throws OutOfTime from then on.
    void set_deadline(std::chrono::steady_clock::time_point deadline) const { deadline_ = deadline; }
    void check_time() const {
        if (std::chrono::steady_clock::now() > deadline_)
            throw OutOfTime();
    }
    // The first area whose file is called so (name after the last '/') or begins so, such as "libcrypto.so"; null when
    // there is none.
    const Area* file_named(std::string_view beginning) const;

private:
    std::vector<Area> areas_;
    std::vector<Written> written_;
    std::vector<Range> own_;
    mutable std::chrono::steady_clock::time_point deadline_ = std::chrono::steady_clock::time_point::max();
    mutable std::uint32_t reads_ = 0;
};

} // namespace kvmserver::unique
