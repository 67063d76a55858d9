// poll and select. They poll each file for its readiness, and wait in wait_io() until something may have changed.
#include "tinykvm/guest/calls.hpp"

namespace gk {

u64 deadline_ms(i64 ms) {
    const i32 t = static_cast<i32>(ms);
    return t < 0 ? kNever : t == 0 ? 0 : now_mono() + static_cast<u64>(t) * 1'000'000;
}

namespace {

constexpr u32 kAlways = POLLERR_ | POLLHUP_;
struct PollFd {
    i32 fd;
    u16 events, revents;
};

u32 events_of(File* f) { return f ? poll_file(f) : u32{POLLNVAL_}; }

// Calls `poll_once`, which returns the number of ready files or -errno, until it returns one of these, a signal comes
// or the deadline has passed.
template <class PollOnce>
i64 repeat_until(u64 deadline, const PollOnce& poll_once) {
    bool news = false;
    i64 result = 0;
    while ((result = poll_once()) == 0) {
        if (deadline == 0 && !news && poll_host_rarely()) {
            news = true; // once more
            continue;
        }
        if (deadline == 0 || (deadline != kNever && now_mono() >= deadline))
            break;
        if (wait_io(deadline) == Wake::signal) {
            result = -EINTR;
            break;
        }
    }
    clear_interest();
    return result == 0 && signal_pending(current) ? -EINTR : result; // even when there was no time to wait
}

i64 poll_until(u64 fds, u64 count, u64 deadline) {
    if (count > static_cast<u64>(file_limit()))
        return -EINVAL;
    const u64 bytes = count * sizeof(PollFd);
    PollFd small[16];
    PollFd* list = small;
    if (count > 16) {
        list = static_cast<PollFd*>(allocate(bytes));
        if (!list)
            return -ENOMEM;
    }
    i64 result = 0;
    if (count && !copy_from_user(list, fds, bytes))
        result = -EFAULT;
    const auto poll_once = [&] {
        i64 ready = 0;
        for (u64 i = 0; i < count; ++i)
            if (File* f = list[i].fd < 0 ? nullptr : file_of(list[i].fd))
                collect_interest(f, list[i].events);
        ask_handles();
        for (u64 i = 0; i < count; ++i) {
            PollFd& p = list[i];
            p.revents = static_cast<u16>(p.fd < 0 ? 0 : events_of(file_of(p.fd)) & (p.events | kAlways | POLLNVAL_));
            ready += p.revents != 0;
        }
        return ready;
    };
    if (result == 0)
        result = repeat_until(deadline, poll_once);
    for (u64 i = 0; i < count && result >= 0; ++i)
        if (!put_user(fds + i * sizeof(PollFd) + offsetof(PollFd, revents), list[i].revents))
            result = -EFAULT;
    if (list != small)
        release(list, bytes);
    return result;
}

i64 select_until(i32 n, u64 in, u64 out, u64 except, u64 deadline) {
    constexpr u32 kWords = 64; // 4096 descriptors
    if (n < 0)
        return -EINVAL;
    if (n > static_cast<i32>(kWords * 64))
        n = kWords * 64;
    const u64 bytes = (static_cast<u64>(n) + 63) / 64 * 8;
    u64* const sets = static_cast<u64*>(allocate(6 * kWords * 8));
    if (!sets)
        return -ENOMEM;
    const u64 user[3] = {in, out, except};
    i64 result = 0;
    for (u32 s = 0; s < 3; ++s)
        if (user[s] && !copy_from_user(sets + s * kWords, user[s], bytes))
            result = -EFAULT;
    const auto wanted = [&](i32 fd) {
        const u32 word = static_cast<u32>(fd) / 64;
        const u64 bit = u64{1} << (fd % 64);
        return (sets[word] & bit ? u32{POLLIN_} : 0u) | (sets[kWords + word] & bit ? u32{POLLOUT_} : 0u) |
               (sets[2 * kWords + word] & bit ? u32{POLLPRI_} : 0u);
    };
    const u32 meaning[3] = {POLLIN_ | POLLHUP_ | POLLERR_, POLLOUT_ | POLLERR_, POLLPRI_};
    const auto poll_once = [&]() -> i64 {
        i64 ready = 0;
        memset(sets + 3 * kWords, 0, 3 * kWords * 8);
        for (i32 fd = 0; fd < n; ++fd)
            if (const u32 events = wanted(fd)) {
                File* f = file_of(fd);
                if (!f)
                    return -EBADF;
                collect_interest(f, events);
            }
        ask_handles();
        for (i32 fd = 0; fd < n; ++fd) {
            if (!wanted(fd))
                continue;
            File* f = file_of(fd);
            const u32 now = f ? poll_file(f) : u32{POLLERR_};
            const u32 word = static_cast<u32>(fd) / 64;
            const u64 bit = u64{1} << (fd % 64);
            for (u32 s = 0; s < 3; ++s)
                if ((sets[s * kWords + word] & bit) && (now & meaning[s])) {
                    sets[(3 + s) * kWords + word] |= bit;
                    ++ready;
                }
        }
        return ready;
    };
    if (result == 0)
        result = repeat_until(deadline, poll_once);
    if (result >= 0)
        for (u32 s = 0; s < 3; ++s)
            if (user[s] && !copy_to_user(user[s], sets + (3 + s) * kWords, bytes))
                result = -EFAULT;
    release(sets, 6 * kWords * 8);
    return result;
}

} // namespace

i64 sys_poll(const Args& c) { return poll_until(c.a[0], c.a[1] & 0xffffffff, deadline_ms(static_cast<i64>(c.a[2]))); }

namespace {

// A timeout in the program's memory. As on Linux, the time left is written back (fs/select.c, poll_select_finish).
struct Timeout {
    u64 at = 0, deadline = kNever;
    bool micro = false;
    i64 take(u64 from, bool timeval) {
        at = from;
        micro = timeval;
        if (!at)
            return 0;
        Timespec t;
        if (!get_user(t, at))
            return -EFAULT;
        if (timeval) { // there may be more than a second of microseconds
            if (t.sec < 0 || t.nsec < 0)
                return -EINVAL;
            t = {t.sec + t.nsec / 1'000'000, t.nsec % 1'000'000 * 1000};
        }
        if (!valid(t))
            return -EINVAL;
        deadline = to_ns(t) == 0 ? 0 : deadline_of(1, false, t);
        return 0;
    }
    // Returns `result`, even if the time cannot be written.
    i64 give_back(i64 result) const {
        if (!at)
            return result;
        const u64 now = now_mono();
        Timespec t = from_ns(deadline > now ? deadline - now : 0);
        if (micro)
            t.nsec /= 1000;
        put_user(at, t);
        return result;
    }
};

} // namespace

i64 sys_ppoll(const Args& c) {
    Timeout timeout;
    i64 error = timeout.take(c.a[2], false);
    if (error < 0 || !use_temporary_mask(c.a[3], c.a[4], error))
        return error;
    return timeout.give_back(drop_temporary_mask(poll_until(c.a[0], c.a[1] & 0xffffffff, timeout.deadline)));
}

i64 sys_select(const Args& c) {
    Timeout timeout;
    if (const i64 error = timeout.take(c.a[4], true); error < 0)
        return error;
    return timeout.give_back(select_until(static_cast<i32>(c.a[0]), c.a[1], c.a[2], c.a[3], timeout.deadline));
}

i64 sys_pselect6(const Args& c) {
    Timeout timeout;
    struct {
        u64 mask, bytes;
    } mask{};
    if (c.a[5] && !get_user(mask, c.a[5]))
        return -EFAULT;
    i64 error = timeout.take(c.a[4], false);
    if (error < 0 || !use_temporary_mask(mask.mask, mask.bytes, error))
        return error;
    return timeout.give_back(
        drop_temporary_mask(select_until(static_cast<i32>(c.a[0]), c.a[1], c.a[2], c.a[3], timeout.deadline)));
}

} // namespace gk
