// Functions of the program that the host calls (tinykvm as a library). The thread that said that it is ready runs them,
// on its own stack below what it uses.
#include "tinykvm/guest/calls.hpp"

namespace gk {

extern "C" const u8 gk_ready, gk_returned, gk_begin_function;

namespace {

constexpr u64 kRedZone = 128;
constexpr u64 kUserFlags = 0x3202; // IF, IOPL 3 (see kvm/cpu_tables.hpp)

Thread* ready_thread; // waits for calls, or runs one
Regs ready_regs;      // its registers whenever it waits
bool runs = false;    // a function

abi::FunctionCall& shared_call() { return gk_shared_page.function_call; }
bool is_requested() { return shared_call().state == abi::kCallRequested; }

// The thread returns to the function, and from there to gk_returned.
void begin_function(Regs* regs) {
    const abi::FunctionCall& call = shared_call();
    *regs = ready_regs;
    const u64 stack = (call.stack_top & ~u64{15}) - 8; // as after a CALL (System V ABI, 3.2.2)
    const u64 returns_to = address(&gk_returned);
    regs->rsp = stack;
    regs->rdi = call.integers[0];
    regs->rsi = call.integers[1];
    regs->rdx = call.integers[2];
    regs->rcx = call.integers[3];
    regs->r8 = call.integers[4];
    regs->r9 = call.integers[5];
    regs->r10 = call.function >> 47 ? 0 : call.function; // not canonical: the jump would fault in the guest kernel
    regs->r11 = address(call.reals);
    regs->rax = 8; // vector registers with arguments, for variadic functions
    regs->rbp = 0;
    regs->rip = address(&gk_begin_function);
    runs = true;
    shared_call().state = abi::kNotReady;
    if (!put_user(stack, returns_to))
        force_signal(SIGSEGV_, {SIGSEGV_, 0, 1, 0, stack, 0});
}

// Returns RAX of the thread, as handlers do: it goes on in a function, or in a signal handler and then here again.
i64 wait_for_call(Regs* regs) {
    *regs = ready_regs;
    shared_call().stack_end = (ready_regs.rsp - kRedZone) & ~u64{63};
    shared_call().state = abi::kCallable;
    wait_at_once();
    while (!is_requested() && !signal_pending(current))
        block(kNever); // the host let the other threads go on
    if (is_requested())
        begin_function(regs);
    else
        shared_call().state = abi::kNotReady;
    return static_cast<i64>(regs->rax);
}

} // namespace

void look_for_call() {
    if (is_requested() && ready_thread)
        make_runnable_first(ready_thread);
}

void not_ready(Thread* t) {
    if (t != ready_thread)
        return;
    ready_thread = nullptr;
    runs = false;
    shared_call().state = abi::kNotReady;
}

i64 sys_ready(const Args& c) {
    if (!shared_call().enabled)
        return -ENOSYS;
    if (runs || (ready_thread && ready_thread != current))
        return -EBUSY;
    ready_thread = current;
    ready_regs = *c.regs;
    ready_regs.rip = address(&gk_ready);
    ready_regs.rflags = kUserFlags;
    ready_regs.orig_rax = ~u64{0}; // in no system call
    return wait_for_call(c.regs);
}

i64 sys_returned(const Args& c) {
    if (!runs || current != ready_thread) { // the program itself has jumped there
        force_signal(SIGSEGV_, {SIGSEGV_, 0, 1, 0, c.regs->rip, 0});
        return 0;
    }
    runs = false;
    shared_call().result = c.a[0];
    shared_call().real_result = c.a[1];
    return wait_for_call(c.regs);
}

i64 sys_call_host(const Args& c) {
    if (!shared_call().enabled)
        return -ENOSYS;
    return host_call(abi::kHostFunction, c.a[0], c.a[1], c.a[2], c.a[3], c.a[4], c.a[5]);
}

} // namespace gk
