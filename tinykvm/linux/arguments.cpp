#include "tinykvm/linux/arguments.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tinykvm/abi/guest_kernel.hpp"
#include "tinykvm/base/path_text.hpp"

namespace tinykvm {

namespace {

// Gathers a range up to its first inaccessible byte; false if there is one.
bool gather_to_fault(GuestMemory& memory, GuestVirt at, std::uint64_t length, Access access, Buffers& out) {
    if (memory.gather(at, length, access, out.runs)) {
        out.bytes += length;
        return true;
    }
    while (length > 0) {
        const std::uint64_t piece = std::min(length, kPageSize - (at.value & (kPageSize - 1)));
        if (!memory.gather(at, piece, access, out.runs))
            return false;
        out.bytes += piece;
        at = at + piece;
        length -= piece;
    }
    return true;
}

} // namespace

const Handle* use_handle(CallContext& call, std::uint64_t number, std::int64_t& error) {
    const std::int32_t n = int_arg(number);
    error = -call.handles.use(n);
    if (error == 0)
        return call.handles.find(n);
    if (const Handle* lost = call.handles.find(n); lost && call.explain)
        call.explain(fmt::format("handle {} \"{}\": {}", n, lost->info.path,
                                 lost->lost_why.empty() ? "connections do not outlive a snapshot" : lost->lost_why));
    return nullptr;
}

AtPath at_path(CallContext& call, std::uint64_t folder, std::uint64_t path, int flags) {
    AtPath at;
    at.handle = int_arg(folder) == AT_FDCWD ? abi::kHandleCwd : int_arg(folder);
    // With AT_EMPTY_PATH, Linux (6.11) treats a null path as "".
    if (path != 0 || !(flags & AT_EMPTY_PATH)) {
        auto text = call.memory.load_string(address_arg(path), kMaxPath);
        at.error = -text.error;
        at.path = std::move(text.value);
    }
    if (at.error != 0)
        return at;
    if (at.path.empty()) {
        at.itself = (flags & AT_EMPTY_PATH) != 0;
        at.error = at.itself ? 0 : -ENOENT;
        return at;
    }
    if (at.path.front() == '/')
        return at;
    const Handle* handle = use_handle(call, static_cast<std::uint64_t>(at.handle), at.error);
    if (!handle)
        return at;
    if (handle->info.kind != HandleKind::directory)
        at.error = -ENOTDIR;
    else if (const std::string now = call.policy.folder_path(*handle); now.empty())
        at.error = -ENOENT;
    else
        at.path = join_path(now, at.path);
    return at;
}

std::int64_t refuse(CallContext& call, const char* name, const std::string& path, const OpenedPath& opened) {
    if (opened.error == kOwnPath) {
        call.own_path = opened.path;
        if (call.explain && call.policy.is_on_host(opened.path))
            call.explain(
                fmt::format("{} \"{}\": the machine's own; --allow-read={} or --allow-write={} would show the host's",
                            name, path, opened.path, opened.path));
        return -kOwnPath;
    }
    return refuse(call, name, path, opened.error, opened.refused);
}

std::int64_t refuse(CallContext& call, const char* name, const std::string& path, int error,
                    const std::string& refused) {
    if (!refused.empty() && call.explain)
        call.explain(fmt::format("{} \"{}\": not permitted; {}", name, path, refused));
    call.lacking = refused;
    return -error;
}

Target look_up(CallContext& call, const char* name, const AtPath& at, bool follow) {
    Target target;
    target.error = at.error;
    if (target.error != 0)
        return target;
    if (at.itself) {
        if (const Handle* handle = use_handle(call, static_cast<std::uint64_t>(at.handle), target.error)) {
            target.fd = handle->file->fd();
            target.path = handle->info.path;
            target.rights = handle->info.rights;
        }
        return target;
    }
    OpenedPath opened = call.policy.open(at.path, O_PATH | (follow ? 0 : O_NOFOLLOW), 0, call.self);
    target.error = refuse(call, name, at.path, opened);
    target.path = std::move(opened.path);
    target.link = std::move(opened.link);
    target.rights = opened.rights;
    target.opened = std::move(opened.fd);
    target.fd = target.opened.get();
    return target;
}

Vector load_vector(GuestMemory& memory, GuestVirt at, std::uint64_t count) {
    Vector vector;
    if (count > kMaxIov) {
        vector.error = -EINVAL;
        return vector;
    }
    vector.items.resize(count);
    if (count != 0 && !memory.read(at, std::as_writable_bytes(std::span(vector.items)))) {
        vector.error = -EFAULT;
        return vector;
    }
    // Check all lengths before any byte moves.
    for (Vector::Item& item : vector.items) {
        if (item.length > static_cast<std::uint64_t>(INT64_MAX))
            vector.error = -EINVAL;
        item.length = std::min(item.length, kMaxTransfer - vector.bytes);
        vector.bytes += item.length;
    }
    return vector;
}

Buffers gather_vector(GuestMemory& memory, const Vector& vector, Access access, std::uint64_t max_bytes,
                      Faults faults) {
    Buffers out;
    for (const Vector::Item& item : vector.items) {
        const std::uint64_t length = std::min(item.length, max_bytes - out.bytes);
        if (length == 0)
            continue;
        if (!gather_to_fault(memory, GuestVirt(item.base), length, access, out)) {
            if (faults == Faults::whole || out.bytes == 0)
                out.error = -EFAULT;
            break;
        }
    }
    return out;
}

Buffers gather_range(GuestMemory& memory, GuestVirt at, std::uint64_t length, Access access) {
    Buffers out;
    length = std::min(length, kMaxTransfer);
    if (length != 0 && !gather_to_fault(memory, at, length, access, out) && out.bytes == 0)
        out.error = -EFAULT;
    return out;
}

SocketAddress load_address(GuestMemory& memory, GuestVirt at, std::int64_t length) {
    SocketAddress address;
    if (length < 0 || length > static_cast<std::int64_t>(sizeof address.storage)) {
        address.error = -EINVAL;
        return address;
    }
    address.length = static_cast<socklen_t>(length);
    if (!memory.read(at, std::as_writable_bytes(std::span(&address.storage, 1)).first(address.length)))
        address.error = -EFAULT;
    return address;
}

std::int64_t store_address(GuestMemory& memory, const SocketAddress& address, GuestVirt at, GuestVirt room) {
    const auto given = memory.load<std::int32_t>(room);
    if (!given)
        return -EFAULT;
    if (*given < 0)
        return -EINVAL;
    const std::size_t bytes =
        std::min<std::size_t>({static_cast<std::size_t>(*given), address.length, sizeof address.storage});
    if (!memory.write(at, std::as_bytes(std::span(&address.storage, 1)).first(bytes)) ||
        !memory.store(room, static_cast<std::int32_t>(address.length)))
        return -EFAULT;
    return 0;
}

} // namespace tinykvm
