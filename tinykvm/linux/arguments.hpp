// Helpers for handlers: paths, buffers, addresses and handles as the guest passes them.
#pragma once
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <vector>

#include "tinykvm/linux/call.hpp"
#include "tinykvm/linux/handles.hpp"
#include "tinykvm/linux/policy.hpp"

namespace tinykvm {

// Linux's IOV_MAX: the limit for the guest's vectors and for the host's own calls.
inline constexpr std::uint64_t kMaxIov = 1024;
// Linux's MAX_RW_COUNT: the maximum that one call moves.
inline constexpr std::uint64_t kMaxTransfer = 0x7fff'f000;

inline std::int32_t int_arg(std::uint64_t value) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(value));
}
inline GuestVirt address_arg(std::uint64_t value) { return GuestVirt(value); }

// The result of a libc call: its value, or -errno. Call it before errno changes.
inline std::int64_t result_of(std::int64_t value) { return value < 0 ? -errno : value; }

// A usable handle, or null with `error` set to a negative errno. If the handle was lost, call.explain says why.
const Handle* use_handle(CallContext& call, std::uint64_t number, std::int64_t& error);

// A path argument of an *at call. AT_FDCWD is kHandleCwd.
struct AtPath {
    std::string path;       // absolute guest path, for Policy
    std::int64_t error = 0; // negative errno
    bool itself = false;    // AT_EMPTY_PATH and "": means the handle itself
    std::int32_t handle = -1;
};
AtPath at_path(CallContext& call, std::uint64_t folder, std::uint64_t path, int flags);

// Returns -error, after telling the user which flag is missing.
std::int64_t refuse(CallContext& call, const char* name, const std::string& path, const OpenedPath& opened);
std::int64_t refuse(CallContext& call, const char* name, const std::string& path, int error,
                    const std::string& refused);

// The file of an AtPath for inspection only: the path opened with O_PATH, or the handle's own descriptor.
struct Target {
    UniqueFd opened;
    int fd = -1;
    std::int64_t error = 0;
    std::string path; // canonical
    std::string link; // see OpenedPath
    Rights rights = 0;
};
Target look_up(CallContext& call, const char* name, const AtPath& at, bool follow);

// A checked copy of a guest's iovec array: at most kMaxIov items of at most INT64_MAX bytes.
struct Vector {
    struct Item {
        std::uint64_t base, length;
    };
    std::vector<Item> items;
    std::uint64_t bytes = 0; // at most kMaxTransfer
    std::int64_t error = 0;  // negative errno
};
Vector load_vector(GuestMemory& memory, GuestVirt at, std::uint64_t count);

// Guest buffers as ranges of host memory.
struct Buffers {
    std::vector<iovec> runs;
    std::uint64_t bytes = 0;
    std::int64_t error = 0; // negative errno
};
enum class Faults {
    partial, // stop before the first inaccessible byte, as Linux does for files and streams
    whole,   // fail with EFAULT, for datagrams
};
// Gathers at most `max_bytes` bytes, so that memory that is not needed is not populated.
Buffers gather_vector(GuestMemory& memory, const Vector& vector, Access access, std::uint64_t max_bytes, Faults faults);
Buffers gather_range(GuestMemory& memory, GuestVirt at, std::uint64_t length, Access access);

// A guest's sockaddr. Linux copies at most sizeof(sockaddr_storage).
struct SocketAddress {
    sockaddr_storage storage{};
    socklen_t length = 0;
    std::int64_t error = 0; // negative errno
    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
    sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};
SocketAddress load_address(GuestMemory& memory, GuestVirt at, std::int64_t length);
// Like Linux's move_addr_to_user. `room` points to a socklen_t in guest memory, read and written.
std::int64_t store_address(GuestMemory& memory, const SocketAddress& address, GuestVirt at, GuestVirt room);

} // namespace tinykvm
