// File locks. The host returns EAGAIN instead of blocking. A thread that waits retries from time to time, because there
// is no notification when another machine or process releases the lock.
#include "tinykvm/guest/own_files.hpp"
#include "tinykvm/guest/transfer.hpp"

namespace gk {
namespace {

constexpr u32 kFcntl = 72, kFlock = 73;
constexpr u64 kShortest = 1'000'000, kLongest = 20'000'000; // ns between two attempts

template <class Try>
i64 until_locked(Try attempt) {
    for (u64 pause = kShortest;; pause = pause * 2 < kLongest ? pause * 2 : kLongest) {
        const i64 result = attempt();
        if (result != -EAGAIN)
            return result;
        const u64 deadline = now_mono() + pause;
        while (now_mono() < deadline && !signal_pending(current))
            block(deadline);
        if (signal_pending(current))
            return -ERESTARTSYS;
    }
}

struct RecordLock {
    std::int16_t type, whence;
    u32 pad;
    i64 start, length;
    i32 pid;
    u32 pad2;
};

} // namespace

i64 record_lock(File* f, u32 command, u64 at) {
    if (own::OwnFile* o = own::own_file(f))
        return own::record_lock(o, command, at);
    const i32 handle = handle_of(f);
    if (handle < 0 || f->kind != Kind::host)
        return -EINVAL;
    RecordLock lock;
    if (!get_user(lock, at))
        return -EFAULT;
    const bool asking = command == 5 || command == 36; // F_GETLK, F_OFD_GETLK
    if (!asking) { // a read lock needs a file open for reading, a write lock one open for writing
        const u32 mode = f->flags & O_ACCMODE_;
        if ((lock.type == 0 && mode == O_WRONLY_) || (lock.type == 1 && mode == 0))
            return -EBADF;
    }
    if (lock.whence == 1) { // SEEK_CUR: the host does not know the offset
        lock.whence = 0;
        if (__builtin_add_overflow(lock.start, static_cast<i64>(static_cast<HostFile*>(f)->offset), &lock.start))
            return -75; // EOVERFLOW
    }
    const bool wait = command == 7 || command == 38; // F_SETLKW, F_OFD_SETLKW
    ref(f);
    const auto attempt = [&] { return host_call(kFcntl, static_cast<u64>(handle), command, address(&lock)); };
    i64 result = wait ? until_locked(attempt) : attempt();
    unref(f);
    if (result == 0 && asking && !put_user(at, lock))
        result = -EFAULT;
    return result;
}

i64 sys_flock(const Args& c) {
    Hold f(c.a[0]);
    if (!f || (f.get()->flags & O_PATH_))
        return -EBADF;
    if (own::OwnFile* o = own::own_file(f.get()))
        return own::flock(o, static_cast<u32>(c.a[1]));
    const i32 handle = handle_of(f.get());
    if (handle < 0)
        return -EINVAL;
    constexpr u64 kNonBlocking = 4;
    const auto attempt = [&] { return host_call(kFlock, static_cast<u64>(handle), c.a[1] | kNonBlocking); };
    return c.a[1] & kNonBlocking ? attempt() : until_locked(attempt);
}

} // namespace gk
