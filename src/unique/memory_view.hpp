// A read-only view of a quiescent machine's memory by guest address, for finding random state in it.
//
// The guest is not trusted: pointers may lead anywhere, so every read says whether all of it was there.
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

// One mapping of the program, as /proc/PID/maps lists it, unless it has no access rights. Neighbours with equal rights
// and name are merged. Most of a large mapping may never have been touched: scan MemoryView::written() instead of
// `bytes`.
struct Area {
    tinykvm::GuestVirt begin, end; // page-aligned
    std::uint32_t prot = 0;        // PROT_READ 1, PROT_WRITE 2, PROT_EXEC 4
    std::string name;              // path of the mapped file, "[stack]", "[heap]" or ""
    // `end` - `begin` bytes, page-aligned; zero where the program has no page yet.
    std::span<const std::byte> bytes;
    bool writable() const { return (prot & 2) != 0; }
};

// A run of pages of one writable area that are not all zero.
struct Written {
    tinykvm::GuestVirt begin; // page-aligned
    std::span<const std::byte> bytes;
    // The bytes as words, for scans for pointers and lengths.
    std::span<const std::uint64_t> words() const {
        return {reinterpret_cast<const std::uint64_t*>(bytes.data()), bytes.size() / sizeof(std::uint64_t)};
    }
};

struct Range {
    tinykvm::GuestVirt begin, end;
};

// Thrown by reads after the deadline. The memory may have been made to keep finders busy.
struct OutOfTime {};

// For one thread; copies are views of the same bytes.
class MemoryView {
public:
    MemoryView() = default;
    // All lists are sorted by address and do not overlap; their bytes must outlive the view. `own`: ranges of pages
    // that are private to the program and writable.
    MemoryView(std::vector<Area> areas, std::vector<Written> written, std::vector<Range> own)
        : areas_(std::move(areas)), written_(std::move(written)), own_(std::move(own)) {}
    // Takes all writable areas for the program's own pages.
    MemoryView(std::vector<Area> areas, std::vector<Written> written);

    const std::vector<Area>& areas() const { return areas_; }
    // All writable memory that is not zero, in runs. Finders scan this.
    const std::vector<Written>& written() const { return written_; }
    // The area that contains the address; null if there is none.
    const Area* area_at(tinykvm::GuestVirt at) const;
    // `count` bytes at `at`, all in one area; empty when they are not all mapped.
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
    // The NUL-terminated text at `at`; "" when there is no NUL within `most` bytes.
    std::string_view text(tinykvm::GuestVirt at, std::size_t most = 256) const;
    // Whether [at, at + count) is the program's own writable memory and has been touched.
    bool writable(tinykvm::GuestVirt at, std::size_t count) const;
    // The parts of [at, at + count) for which writable() holds.
    std::vector<Range> writable_parts(tinykvm::GuestVirt at, std::size_t count) const;
    // Reads throw OutOfTime after this.
    void set_deadline(std::chrono::steady_clock::time_point deadline) const { deadline_ = deadline; }
    void check_time() const {
        if (std::chrono::steady_clock::now() > deadline_)
            throw OutOfTime();
    }
    // The first area whose file name (the part after the last '/') begins with this, such as "libcrypto.so"; null if
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
