#include "tinykvm/linux/handles.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "tinykvm/abi/guest_kernel.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/must_hold.hpp"
#include "tinykvm/linux/datagram_socket.hpp"
#include "tinykvm/linux/listens_at.hpp"
#include "tinykvm/linux/policy.hpp"

namespace tinykvm {

namespace {

// A socket whose peer is closed. It polls as readable, writable and hung up.
int hung_up_fd() {
    static const UniqueFd fd = [] {
        int pair[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
            throw_errno("socketpair");
        ::close(pair[1]);
        return UniqueFd(pair[0]);
    }();
    return fd.get();
}

// A datagram socket that never receives anything.
int silent_fd() {
    static const UniqueFd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    return fd.get();
}

void ignore_write_signals() {
    static const bool done = [] {
        std::signal(SIGPIPE, SIG_IGN);
        std::signal(SIGXFSZ, SIG_IGN);
        return true;
    }();
    (void)done;
}

bool is_connected(int fd) {
    sockaddr_storage peer;
    socklen_t bytes = sizeof(peer);
    return ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &bytes) == 0;
}

// An eventfd that polls like a datagram socket with or without a datagram.
int ready_fd(bool readable) {
    static const UniqueFd with(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)),
        without(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    return readable ? with.get() : without.get();
}

std::shared_ptr<const HostFile> own_file(UniqueFd fd) { return std::make_shared<const HostFile>(std::move(fd)); }

UniqueFd private_copy(const Handle& handle) {
    const int fd = handle.file->fd();
    switch (handle.info.kind) {
    case HandleKind::directory: return UniqueFd(::openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    case HandleKind::file: {
        const int access = static_cast<int>(handle.info.flags) & O_ACCMODE;
        return UniqueFd(::open(host_path_of(fd).c_str(), access | O_NONBLOCK | O_CLOEXEC));
    }
    default: errno = EINVAL; return UniqueFd();
    }
}

// Whether one handle can replace the other in a snapshot: the same file with the same access mode.
bool is_interchangeable(const Handle& a, const Handle& b) {
    if (a.info.kind != b.info.kind || a.info.path != b.info.path || a.lost != b.lost ||
        ((a.info.flags ^ b.info.flags) & (O_ACCMODE | O_PATH)) != 0)
        return false;
    struct stat x {
    }, y{};
    return a.file == b.file || (a.info.kind == HandleKind::file && a.file && b.file && ::fstat(a.file->fd(), &x) == 0 &&
                                ::fstat(b.file->fd(), &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino);
}

} // namespace

FileIdentity identity_of(const struct stat& info) {
    return {info.st_dev, info.st_ino, static_cast<std::uint64_t>(info.st_size),
            static_cast<std::int64_t>(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec};
}

std::string host_path_of(int fd) { return fmt::format("/proc/self/fd/{}", fd); }

int describe(const OpenedPath& opened, std::uint32_t flags, HandleInfo& info) {
    struct stat status {};
    if (::fstat(opened.fd.get(), &status) != 0)
        return errno;
    info.kind = opened.stdio                                                                    ? HandleKind::stdio
                : S_ISDIR(status.st_mode)                                                       ? HandleKind::directory
                : S_ISREG(status.st_mode) || S_ISLNK(status.st_mode) || S_ISBLK(status.st_mode) ? HandleKind::file
                                                                                                : HandleKind::device;
    info.path = opened.path;
    info.flags = flags;
    info.rights = opened.rights;
    info.synthetic = opened.synthetic;
    info.identity = identity_of(status);
    return 0;
}

OpenedPath open_start_folder(const Policy& policy, const std::string& path, int flags) {
    OpenedPath opened = policy.open(path, flags, 0, {});
    if (opened.error != kOwnPath)
        return opened;
    const std::string own = opened.path;
    opened = policy.open("/", O_PATH | O_DIRECTORY, 0, {});
    opened.path = own; // the guest kernel asks for this path at boot
    return opened;
}

std::shared_ptr<const HostFile> HostFile::borrowed(int fd) {
    auto file = std::make_shared<HostFile>(UniqueFd(fd));
    file->borrowed_ = true;
    return file;
}

HostFile::~HostFile() {
    if (borrowed_)
        (void)fd_.release();
}

const Handle* HandleBase::find(std::int32_t number) const {
    if (number < 0 || static_cast<std::size_t>(number) >= handles_.size())
        return nullptr;
    return handles_[static_cast<std::size_t>(number)].get();
}

HandleTable::HandleTable(const Policy& policy, std::uint32_t limit) : limit_(std::max(limit, 4u)) {
    ignore_write_signals();
    slots_.resize(limit_);
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        Handle handle;
        handle.file = HostFile::borrowed(fd);
        handle.info.kind = HandleKind::stdio;
        handle.info.path = fd == STDIN_FILENO ? "/dev/stdin" : fd == STDOUT_FILENO ? "/dev/stdout" : "/dev/stderr";
        handle.info.flags = fd == STDIN_FILENO ? O_RDONLY : O_WRONLY;
        put(fd, std::make_unique<const Handle>(std::move(handle)));
    }
    OpenedPath cwd = open_start_folder(policy, policy.facts().cwd, O_PATH | O_DIRECTORY);
    HandleInfo info;
    if (cwd.error == 0)
        cwd.error = describe(cwd, O_PATH | O_DIRECTORY, info);
    if (cwd.error != 0)
        throw UserError(ExitCode::not_found, fmt::format("--cwd={}: no such folder", policy.facts().cwd));
    const std::int32_t number = add(std::move(cwd.fd), std::move(info));
    must_hold(number == abi::kHandleCwd);
    (void)number;
    freeze();
}

HandleTable::HandleTable(std::shared_ptr<const HandleBase> base, std::uint32_t limit)
    : base_(std::move(base)),
      limit_(std::max<std::uint32_t>(limit, static_cast<std::uint32_t>(base_->handles_.size()))) {
    ignore_write_signals();
    slots_.resize(limit_);
    for (std::size_t n = 0; n < base_->handles_.size(); ++n)
        slots_[n].handle = base_->handles_[n].get();
}

HandleTable::Slot* HandleTable::slot(std::int32_t number) {
    if (number < 0 || static_cast<std::size_t>(number) >= slots_.size())
        return nullptr;
    return &slots_[static_cast<std::size_t>(number)];
}

void HandleTable::put(std::int32_t number, std::unique_ptr<const Handle> handle) {
    Slot& at = *slot(number);
    if (!at.changed) {
        at.changed = true;
        changed_.push_back(number);
    }
    at.own = std::move(handle);
    at.handle = at.own.get();
}

std::int32_t HandleTable::add(UniqueFd fd, HandleInfo info) {
    while (lowest_free_ < static_cast<std::int32_t>(slots_.size()) && slot(lowest_free_)->handle)
        ++lowest_free_;
    if (lowest_free_ >= static_cast<std::int32_t>(slots_.size()))
        return -EMFILE;
    Handle handle;
    handle.file = own_file(std::move(fd));
    handle.info = std::move(info);
    put(lowest_free_, std::make_unique<const Handle>(std::move(handle)));
    return lowest_free_++;
}

void HandleTable::replace(std::int32_t number, UniqueFd fd, HandleInfo info) {
    must_hold(find(number));
    Handle handle;
    handle.file = own_file(std::move(fd));
    handle.info = std::move(info);
    put(number, std::make_unique<const Handle>(std::move(handle)));
}

std::int32_t HandleTable::close(std::int32_t number) {
    if (!find(number))
        return -EBADF;
    put(number, nullptr);
    lowest_free_ = std::min(lowest_free_, number);
    return 0;
}

std::vector<HandleBase::Served> HandleBase::served() const {
    std::vector<Served> out;
    for (std::size_t n = 0; n < handles_.size(); ++n)
        if (const Handle* handle = handles_[n].get(); handle && handle->file && names_port(handle->info.bound))
            out.push_back({static_cast<std::int32_t>(n), handle->file->fd()});
    return out;
}

void HandleTable::set_bound(std::int32_t number, std::vector<std::uint8_t> address) {
    auto copy = std::make_unique<Handle>(*find(number));
    copy->info.bound = std::move(address);
    put(number, std::move(copy));
}

bool HandleTable::has_other_bound(std::int32_t number, const NetAddress& address) const {
    const bool v6_only = is_v6_only(fd(number));
    for (std::int32_t at = 0; at < static_cast<std::int32_t>(slots_.size()); ++at) {
        const Handle* const handle = find(at);
        if (!handle || at == number || handle->lost != 0 || handle->info.bound.empty())
            continue;
        const auto other = net_address(reinterpret_cast<const sockaddr*>(handle->info.bound.data()),
                                       static_cast<socklen_t>(handle->info.bound.size()));
        if (other && bound_alike(*other, is_v6_only(fd(at)), address, v6_only))
            return true;
    }
    return false;
}

bool HandleTable::is_shared(std::int32_t number) const {
    const Handle* handle = find(number);
    return handle && handle->info.kind == HandleKind::socket && handle->file &&
           !slots_[static_cast<std::size_t>(number)].own;
}

bool HandleTable::is_unfinished(std::int32_t number) const {
    if (!find(number) || !slots_[static_cast<std::size_t>(number)].own)
        return false;
    const Handle* of_base = base_ ? base_->find(number) : nullptr;
    return !(answered_ && of_base && of_base->anew);
}

void HandleTable::give(std::int32_t number, Datagram datagram) {
    given_number_ = number;
    given_ = std::move(datagram);
}

bool HandleTable::receive_given(std::int32_t number, bool peek, std::optional<Datagram>& out) {
    if (!given_only_ || !is_shared(number))
        return false;
    if (number == given_number_)
        out = given_;
    if (out && !peek)
        given_.reset();
    return true;
}

void HandleTable::set_name(std::int32_t number, UnixName name) {
    auto copy = std::make_unique<Handle>(*find(number));
    UniqueFd fd(::dup(copy->file->fd()));
    if (!fd)
        throw_errno("dup");
    copy->file = std::make_shared<const HostFile>(std::move(fd), std::move(name));
    put(number, std::move(copy));
}

const Handle* HandleTable::find(std::int32_t number) const {
    if (number < 0 || static_cast<std::size_t>(number) >= slots_.size())
        return nullptr;
    return slots_[static_cast<std::size_t>(number)].handle;
}

int HandleTable::fd(std::int32_t number) const {
    const Handle* handle = find(number);
    if (!handle)
        return -1;
    if (handle->anew)
        return silent_fd();
    if (handle->lost != 0)
        return handle->info.kind == HandleKind::socket ? hung_up_fd() : -1;
    if (given_only_ && is_shared(number))
        return ready_fd(given_ && number == given_number_);
    return handle->file->fd();
}

int HandleTable::error(std::int32_t number) const {
    const Handle* handle = find(number);
    return handle ? handle->lost : EBADF;
}

int HandleTable::use(std::int32_t number) {
    const Handle* seen = find(number);
    if (!seen || !seen->anew)
        return error(number);
    UniqueFd fd = make_datagram_socket(seen->info);
    if (!fd)
        return errno;
    replace(number, std::move(fd), HandleInfo(seen->info));
    return 0;
}

int HandleTable::map_error(std::int32_t number, int prot, bool shared) const {
    if (const int why = error(number))
        return why;
    const HandleInfo& info = find(number)->info;
    const auto access = info.flags & O_ACCMODE;
    if (info.flags & O_PATH)
        return EBADF;
    if (info.kind != HandleKind::file && info.kind != HandleKind::memfd && info.kind != HandleKind::device)
        return ENODEV;
    if (access == O_WRONLY || (shared && (prot & PROT_WRITE) && access != O_RDWR))
        return EACCES;
    if ((prot & PROT_EXEC) && !(info.rights & kExecute))
        return EPERM;
    return 0;
}

int HandleTable::private_fd(std::int32_t number) {
    if (const int why = error(number))
        return -why;
    const Handle& seen = *find(number);
    if (seen.info.flags & O_PATH) // reopening would give access that the program did not ask for
        return -EBADF;
    // A file of the base is never private, even if no other table uses it at the moment.
    const bool own = slot(number)->own && seen.file.use_count() == 1;
    if (own || seen.info.synthetic)
        return seen.file->fd();
    if (seen.info.kind == HandleKind::memfd) {
        const auto copy = own_memory_file(seen.file);
        return copy ? copy->fd() : -(errno ? errno : EIO);
    }
    UniqueFd copy = private_copy(seen);
    if (!copy)
        return -(errno ? errno : EIO);
    replace(number, std::move(copy), HandleInfo(seen.info));
    return fd(number);
}

void HandleTable::set_append(std::int32_t number, bool append) {
    const Handle* seen = find(number);
    must_hold(seen);
    auto own = std::make_unique<Handle>(*seen);
    own->info.flags = append ? own->info.flags | O_APPEND : own->info.flags & ~static_cast<std::uint32_t>(O_APPEND);
    put(number, std::move(own));
}

bool HandleBase::has(const std::shared_ptr<const HostFile>& file) const {
    return std::any_of(handles_.begin(), handles_.end(),
                       [&](const auto& handle) { return handle && handle->file == file; });
}

std::int32_t HandleBase::number_of(const Handle& handle) const {
    for (std::size_t n = 0; n < handles_.size(); ++n)
        if (handles_[n] && is_interchangeable(*handles_[n], handle))
            return static_cast<std::int32_t>(n);
    return -1;
}

std::int32_t HandleTable::number_of(const Handle& handle) {
    for (std::size_t n = 0; n < slots_.size(); ++n)
        if (slots_[n].handle && is_interchangeable(*slots_[n].handle, handle))
            return static_cast<std::int32_t>(n);
    for (std::size_t n = abi::kHandleCwd + 1; n < slots_.size(); ++n)
        if (!slots_[n].handle) {
            put(static_cast<std::int32_t>(n), std::make_unique<const Handle>(handle));
            return static_cast<std::int32_t>(n);
        }
    return -EMFILE;
}

std::vector<FileIdentity> HandleTable::open_for_writing() const {
    std::vector<FileIdentity> files;
    for (const Slot& at : slots_)
        if (struct stat info{}; at.handle && at.handle->file && at.handle->info.kind == HandleKind::file &&
                                (at.handle->info.flags & O_ACCMODE) != O_RDONLY && !(at.handle->info.flags & O_PATH) &&
                                ::fstat(at.handle->file->fd(), &info) == 0)
            files.push_back(identity_of(info));
    return files;
}

void HandleTable::reset() {
    given_.reset();
    answered_ = false;
    for (const std::int32_t number : changed_) {
        Slot& at = *slot(number);
        at.own.reset();
        at.handle = base_ ? base_->find(number) : nullptr;
        at.changed = false;
        lowest_free_ = std::min(lowest_free_, number);
    }
    changed_.clear();
    own_memory_.clear();
    mapped_memory_.clear();
}

std::shared_ptr<const HandleBase> HandleTable::freeze() {
    if (base_ && changed_.empty())
        return base_;
    auto base = std::make_shared<HandleBase>();
    for (std::size_t n = 0; n < slots_.size(); ++n) {
        if (!slots_[n].handle)
            continue;
        auto copy = std::make_unique<Handle>(*slots_[n].handle);
        const bool serves = copy->info.kind == HandleKind::socket && copy->file && names_port(copy->info.bound) &&
                            !is_connected(copy->file->fd());
        if (struct stat info{};
            copy->info.kind == HandleKind::memfd && copy->file && ::fstat(copy->file->fd(), &info) == 0) {
            ::fcntl(copy->file->fd(), F_SETFL, O_NOATIME); // machines that read it must not change its access time
            if (copy->info.identity.ino == 0)
                copy->info.identity = identity_of(info);
        }
        if (copy->file && (serves || can_be_made_anew(copy->info)))
            note_settings(copy->file->fd(), copy->info);
        if (copy->info.kind == HandleKind::socket && copy->file && !serves) {
            copy->anew = can_be_made_anew(copy->info);
            if (!copy->anew)
                copy->info.bound.clear();
            copy->file.reset();
            copy->lost = ECONNRESET;
        }
        base->handles_.resize(n + 1);
        base->handles_[n] = std::move(copy);
    }
    base_ = std::move(base);
    // Unchanged handles refer to the new base too, so that the old one can be freed.
    for (std::size_t n = 0; n < slots_.size(); ++n)
        slots_[n] = Slot{base_->find(static_cast<std::int32_t>(n)), nullptr, false};
    changed_.clear();
    own_memory_.clear();
    lowest_free_ = 0;
    return base_;
}

} // namespace tinykvm
