#include "tinykvm/memory/guest_memory.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace tinykvm {

bool GuestMemory::copy_out(std::byte* to, const iovec& run) {
    std::memcpy(to, run.iov_base, run.iov_len);
    return true;
}

bool GuestMemory::copy_in(const iovec& run, const std::byte* from) {
    std::memcpy(run.iov_base, from, run.iov_len);
    return true;
}

bool GuestMemory::read(GuestVirt from, std::span<std::byte> to) {
    std::vector<iovec> runs;
    if (!gather(from, to.size(), Access::read, runs))
        return false;
    std::byte* out = to.data();
    for (const iovec& run : runs) {
        if (!copy_out(out, run))
            return false;
        out += run.iov_len;
    }
    return true;
}

bool GuestMemory::write(GuestVirt to, std::span<const std::byte> from) {
    std::vector<iovec> runs;
    if (!gather(to, from.size(), Access::write, runs))
        return false;
    const std::byte* in = from.data();
    for (const iovec& run : runs) {
        if (!copy_in(run, in))
            return false;
        in += run.iov_len;
    }
    return true;
}

GuestMemory::StringResult GuestMemory::load_string(GuestVirt at, std::size_t max) {
    StringResult result;
    std::vector<iovec> runs;
    while (result.value.size() <= max) {
        // Read up to the end of the page, because the next page may be unmapped.
        const std::uint64_t chunk = kPageSize - (at.value & (kPageSize - 1));
        runs.clear();
        if (!gather(at, chunk, Access::read, runs)) {
            result.error = EFAULT;
            return result;
        }
        for (const iovec& run : runs) {
            std::array<std::byte, kPageSize> page;
            if (!copy_out(page.data(), run)) {
                result.error = EFAULT;
                return result;
            }
            const char* text = reinterpret_cast<const char*>(page.data());
            const std::size_t n = ::strnlen(text, run.iov_len);
            result.value.append(text, n);
            if (n < run.iov_len) {
                if (result.value.size() > max)
                    result.error = ENAMETOOLONG;
                return result;
            }
        }
        at = at + chunk;
    }
    result.error = ENAMETOOLONG;
    return result;
}

} // namespace tinykvm
