// The only access to guest memory, with bounds checks.
//
// Everything that comes from a guest is read through this class: once, copied, then validated. A range that is
// unmapped, not permitted or wraps around is refused as a whole: the function returns false, and the caller answers
// EFAULT. Ranges that are mapped but not populated are populated.
#pragma once
#include <sys/uio.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "tinykvm/base/guest_addr.hpp"

namespace tinykvm {

enum class Access { read, write };

class GuestMemory {
public:
    virtual ~GuestMemory() = default;

    // Appends the host ranges that back [at, at+length), one per run of contiguous pages, for one readv or writev. They
    // stay valid until the next call that maps or unmaps guest memory. False when `access` to any byte is not
    // permitted; `out` is then unchanged.
    virtual bool gather(GuestVirt at, std::uint64_t length, Access access, std::vector<iovec>& out) = 0;

    // Copy a whole range that gather() returned. False when a mapped file has become shorter since; part of the range
    // may be copied then.
    virtual bool copy_out(std::byte* to, const iovec& run);
    virtual bool copy_in(const iovec& run, const std::byte* from);

    bool read(GuestVirt from, std::span<std::byte> to);
    bool write(GuestVirt to, std::span<const std::byte> from);

    template <class T>
    std::optional<T> load(GuestVirt at) {
        static_assert(std::is_trivially_copyable_v<T>);
        T value;
        if (!read(at, std::as_writable_bytes(std::span(&value, 1))))
            return std::nullopt;
        return value;
    }
    template <class T>
    bool store(GuestVirt at, const T& value) {
        static_assert(std::is_trivially_copyable_v<T>);
        return write(at, std::as_bytes(std::span(&value, 1)));
    }

    // A NUL-terminated string of at most `max` bytes before the NUL. Errors: EFAULT, ENAMETOOLONG.
    struct StringResult {
        std::string value;
        int error = 0;
    };
    StringResult load_string(GuestVirt at, std::size_t max);
};

} // namespace tinykvm
