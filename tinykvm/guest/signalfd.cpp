// signalfd (fs/signalfd.c).
#include "tinykvm/guest/calls.hpp"
#include "tinykvm/guest/signal.hpp"

namespace gk {
namespace {

struct SignalFile : File {
    u64 mask = 0;
    SignalFile* next = nullptr;
    SignalFile* previous = nullptr;
};
SignalFile* signal_files;

// struct signalfd_siginfo (linux/signalfd.h)
struct SignalInfo {
    u32 signo;
    i32 error, code;
    u32 pid, uid;
    i32 fd;
    u32 tid, band, overrun, trap;
    i32 status, number;
    u64 pointer, user_time, system_time, address;
    u8 more[48];
};
static_assert(sizeof(SignalInfo) == 128);

SignalInfo for_reader(const SigInfo& info) {
    constexpr i32 kTimer = -2, kKernel = 0x80;
    SignalInfo out{};
    out.signo = static_cast<u32>(info.signo);
    out.error = info.error;
    out.code = info.code;
    const u32 low = static_cast<u32>(info.f0), high = static_cast<u32>(info.f0 >> 32);
    if (info.code > 0 && info.code < kKernel) {
        out.address = info.f0;
        return out;
    }
    if (info.code == kTimer) {
        out.tid = low;
        out.overrun = high;
    } else {
        out.pid = low;
        out.uid = high;
    }
    if (info.code < 0) {
        out.pointer = info.f1;
        out.number = static_cast<i32>(info.f1);
    }
    return out;
}

bool ready(const SignalFile* f) { return ((current->sig_pending.bits | process_pending.bits) & f->mask) != 0; }

i64 signal_read(File* file, Cursor& out, i64) {
    auto* f = static_cast<SignalFile*>(file);
    if (out.left < sizeof(SignalInfo))
        return -EINVAL;
    i64 done = 0;
    for (;;) {
        SigInfo info;
        while (out.left >= sizeof(SignalInfo) && take_signal(f->mask, info)) {
            const SignalInfo one = for_reader(info);
            const i64 n = out.put(&one, sizeof(one));
            if (n < static_cast<i64>(sizeof(one)))
                return done ? done : -EFAULT;
            done += n;
        }
        if (done)
            return done;
        if (nonblocking(f))
            return -EAGAIN;
        if (wait_io(kNever) == Wake::signal)
            return -ERESTARTSYS;
    }
}
i64 signal_write(File*, Cursor&, i64) { return -EINVAL; }
u32 signal_poll(File* f) { return ready(static_cast<SignalFile*>(f)) ? POLLIN_ | POLLRDNORM_ : 0; }
void signal_close(File* file) {
    auto* f = static_cast<SignalFile*>(file);
    (f->previous ? f->previous->next : signal_files) = f->next;
    if (f->next)
        f->next->previous = f->previous;
    destroy(f);
}
const FileOps signal_ops{signal_read, signal_write, signal_poll, signal_close, "anon_inode:[signalfd]"};

} // namespace

void tell_signal_files(i32 signal) {
    for (SignalFile* f = signal_files; f; f = f->next)
        if (f->mask & bit(signal))
            event_in(f);
}

i64 sys_signalfd4(const Args& c) {
    u64 mask;
    if (c.a[2] != sizeof(mask))
        return -EINVAL;
    if (!get_user(mask, c.a[1]))
        return -EFAULT;
    if (c.a[3] & ~u64{O_NONBLOCK_ | O_CLOEXEC_})
        return -EINVAL;
    mask &= ~kUnmaskable;
    const i32 fd = static_cast<i32>(c.a[0]);
    if (fd != -1) {
        File* there = file_of(fd);
        if (!there)
            return -EBADF;
        if (there->kind != Kind::signal)
            return -EINVAL;
        static_cast<SignalFile*>(there)->mask = mask;
        notify_io(); // waiters check the new mask
        return fd;
    }
    auto* f = make<SignalFile>();
    if (!f)
        return -ENOMEM;
    f->ops = &signal_ops;
    f->kind = Kind::signal;
    f->flags = static_cast<u32>(O_RDWR_ | (c.a[3] & O_NONBLOCK_));
    f->mask = mask;
    f->next = signal_files;
    if (signal_files)
        signal_files->previous = f;
    signal_files = f;
    return install_or_release(f, (c.a[3] & O_CLOEXEC_) != 0);
}

i64 sys_signalfd(const Args& c) {
    Args d = c;
    d.a[3] = 0;
    return sys_signalfd4(d);
}

} // namespace gk
