// Signal frames on the program's stack in Linux's layout, sigreturn, and faults.
#include "tinykvm/guest/calls.hpp"
#include "tinykvm/guest/signal.hpp"

namespace gk {
namespace {

// uapi/asm/sigcontext.h and ucontext.h, x86-64.
struct SigContext {
    u64 r8, r9, r10, r11, r12, r13, r14, r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, eflags;
    u16 cs, gs, fs, ss;
    u64 err, trapno, oldmask, cr2, fpstate, reserved[8];
};
struct UContext {
    u64 flags, link;
    SigStack stack;
    SigContext context;
    u64 mask;
};
struct Frame {
    u64 restorer;
    UContext uc;
    u8 info[128];
};
static_assert(sizeof(SigContext) == 256);

constexpr u32 kFpMagic1 = 0x46505853, kFpMagic2 = 0x46505845;
struct FpSoftware {
    u32 magic1, extended_size;
    u64 features;
    u32 xstate_size, padding[7];
};
constexpr u64 kFpSoftwareAt = 464;

bool on_alternate(const SigStack& alt, u64 sp) {
    return !(alt.flags & kDisable) && sp > alt.sp && sp - alt.sp <= alt.size;
}

} // namespace

// For a RIP in a stub, returns the matching address in the program's code, because signal handlers and unwinders know
// only that. This is possible because a stub begins with a copy of the program's instructions.
u64 program_rip(u64 rip) {
    const u64 stub = rip & ~u64{abi::kStubBytes - 1};
    abi::StubPage page;
    u8 moved;
    i32 distance;
    if (!get_user(page, rip & ~u64{4095}) || page.magic != abi::kStubMagic ||
        page.entry != reinterpret_cast<u64>(&gk_stub_entry) || !get_user(moved, stub + abi::kStubBytes - 1) ||
        !get_user(distance, stub + moved + 3))
        return rip;
    const u64 syscall = stub + moved + 7 + static_cast<u64>(static_cast<i64>(distance)) - 2;
    return syscall - moved + (rip - stub < moved ? rip - stub : u64{moved});
}

bool push_frame(Regs* regs, i32 signal, const Action& action, const SigInfo& info, u64 mask) {
    u64 sp = regs->rsp;
    const SigStack& alt = current->alt_stack;
    const bool on_alt = on_alternate(alt, sp);
    const bool enters_alt = (action.flags & kSaOnstack) && !(alt.flags & kDisable) && !on_alt;
    if (enters_alt)
        sp = alt.sp + alt.size;
    else
        sp -= 128; // red zone

    const u32 area = gk_shared_page.xsave_bytes;
    vector_save_current();
    sp = (sp - area - 4) & ~u64{63};
    const u64 fpstate = sp;
    sp = ((sp - sizeof(Frame)) & ~u64{15}) - 8;
    if ((enters_alt || on_alt) && sp < alt.sp) // the frame does not fit
        return false;
    u8* image = current->xsave;
    const u64 features = gk_shared_page.xsave_mask;
    if (features != 0) { // without XSAVE, the frame has only the FXSAVE image, as on Linux
        FpSoftware software{};
        software.magic1 = kFpMagic1;
        software.extended_size = area + 4;
        software.features = features;
        software.xstate_size = area;
        memcpy(image + kFpSoftwareAt, &software, sizeof(software));
    }
    if (!copy_to_user(fpstate, image, area) || (features != 0 && !put_user(fpstate + area, kFpMagic2)))
        return false;

    Frame frame;
    memset(&frame, 0, sizeof(frame));
    frame.restorer = action.restorer;
    frame.uc.flags = features != 0 ? 7 : 6; // UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS
    frame.uc.stack = alt;
    if (on_alt)
        frame.uc.stack.flags |= kOnStack;
    SigContext& c = frame.uc.context;
    // clang-format off
    c.r8 = regs->r8; c.r9 = regs->r9; c.r10 = regs->r10; c.r11 = regs->r11;
    c.r12 = regs->r12; c.r13 = regs->r13; c.r14 = regs->r14; c.r15 = regs->r15;
    c.rdi = regs->rdi; c.rsi = regs->rsi; c.rbp = regs->rbp; c.rbx = regs->rbx;
    c.rdx = regs->rdx; c.rax = regs->rax; c.rcx = regs->rcx; c.rsp = regs->rsp;
    // clang-format on
    c.rip = program_rip(regs->rip);
    c.eflags = regs->rflags;
    c.cs = 0x33;
    c.ss = 0x2b;
    c.err = gk_shared_page.fault_error;
    c.trapno = gk_shared_page.fault_vector;
    c.cr2 = gk_shared_page.fault_address;
    c.oldmask = mask;
    c.fpstate = fpstate;
    frame.uc.mask = mask;
    memcpy(frame.info, &info, sizeof(info));
    if (!copy_to_user(sp, &frame, sizeof(frame)))
        return false;
    if (enters_alt && (alt.flags & kAutoDisarm))
        current->alt_stack = SigStack{};
    regs->rsp = sp;
    regs->rip = action.handler;
    regs->rdi = static_cast<u64>(signal);
    regs->rsi = sp + offsetof(Frame, info);
    regs->rdx = sp + offsetof(Frame, uc);
    regs->rax = 0;
    regs->rflags &= ~u64{0x500}; // DF, TF
    regs->orig_rax = ~u64{0};
    return true;
}

namespace {
// The si_code for the unmasked floating-point exceptions that occurred (arch/x86/kernel/fpu/core.c,
// fpu__exception_code).
i32 float_code(bool x87) {
    u32 happened;
    if (x87) {
        u16 status, control;
        asm volatile("fnstsw %0" : "=m"(status));
        asm volatile("fnstcw %0" : "=m"(control));
        happened = status & ~u32{control};
    } else {
        u32 mxcsr;
        asm volatile("stmxcsr %0" : "=m"(mxcsr));
        happened = mxcsr & ~(mxcsr >> 7);
    }
    return happened & 1 ? 7 : happened & 4 ? 3 : happened & 8 ? 4 : happened & 0x12 ? 5 : happened & 0x20 ? 6 : 0;
}
} // namespace

extern "C" Regs* gk_fault(Regs* regs) {
    const abi::Shared& s = gk_shared_page;
    SigInfo info;
    info.f0 = s.fault_address;
    switch (s.fault_vector) {
    case abi::kDebugVector: debug_stop(abi::kStopTrap); return leave(regs);
    case 0:
        info.signo = SIGFPE_;
        info.code = 1;
        info.f0 = program_rip(regs->rip);
        break;
    case 1:
        info.signo = SIGTRAP_;
        info.code = 1;
        info.f0 = program_rip(regs->rip);
        break;
    case 3:
        info.signo = SIGTRAP_;
        info.code = 0x80;
        info.f0 = 0;
        break;
    case 6:
        info.signo = SIGILL_;
        info.code = 2;
        info.f0 = program_rip(regs->rip);
        break;
    case 14:
        info.signo = SIGSEGV_;
        info.code = 1; // SEGV_MAPERR
        if (s.fault_error & 0x80000000u)
            info.code = 2; // SEGV_ACCERR
        if (s.fault_error & 0x40000000u) {
            info.signo = SIGBUS_;
            info.code = 2; // BUS_ADRERR
        }
        break;
    case 16:
    case 19:
        info.signo = SIGFPE_;
        info.code = float_code(s.fault_vector == 16);
        info.f0 = program_rip(regs->rip);
        break;
    case 17:
        info.signo = SIGBUS_;
        info.code = 1;
        break;
    default:
        info.signo = SIGSEGV_;
        info.code = 0x80;
        info.f0 = 0;
        break;
    }
    force_signal(info.signo, info);
    return leave(regs);
}

i64 sys_rt_sigreturn(const Args& c) {
    Regs* regs = c.regs;
    Frame frame;
    const SigInfo bad{SIGSEGV_, 0, 0x80, 0, regs->rsp, 0};
    regs->orig_rax = ~u64{0};
    if (!get_user(frame, regs->rsp - 8)) {
        force_signal(SIGSEGV_, bad);
        return 0;
    }
    const SigContext& s = frame.uc.context;
    if (!s.fpstate) { // resets it to the initial state
        memset(current->xsave, 0, gk_shared_page.xsave_bytes);
        init_xsave(current->xsave);
        vector_restore_current();
    } else {
        vector_save_current();
        u8* image = current->xsave;
        const u32 area = gk_shared_page.xsave_bytes;
        if (!copy_from_user(image, s.fpstate, area)) {
            force_signal(SIGSEGV_, bad);
            return 0;
        }
        // XRSTOR faults on reserved bits: keep only the components that the machine uses (Intel SDM vol. 1, 13.8).
        if (const u64 ours = gk_shared_page.xsave_mask) {
            FpSoftware software;
            memcpy(&software, image + kFpSoftwareAt, sizeof(software));
            u64 features;
            memcpy(&features, image + 512, sizeof(features));
            features = software.magic1 == kFpMagic1 ? features & ours : 3;
            memcpy(image + 512, &features, sizeof(features));
            memset(image + 520, 0, 56);
        }
        u32 mxcsr;
        memcpy(&mxcsr, image + 24, sizeof(mxcsr));
        mxcsr &= 0xffff;
        memcpy(image + 24, &mxcsr, sizeof(mxcsr));
        vector_restore_current();
    }
    regs->r8 = s.r8;
    regs->r9 = s.r9;
    regs->r10 = s.r10;
    regs->r11 = s.r11;
    regs->r12 = s.r12;
    regs->r13 = s.r13;
    regs->r14 = s.r14;
    regs->r15 = s.r15;
    regs->rdi = s.rdi;
    regs->rsi = s.rsi;
    regs->rbp = s.rbp;
    regs->rbx = s.rbx;
    regs->rdx = s.rdx;
    regs->rcx = s.rcx;
    regs->rsp = s.rsp;
    regs->rip = s.rip;
    regs->rflags = (s.eflags & 0x40cd5) | 0x3202;
    current->sig_mask = frame.uc.mask & ~kUnmaskable;
    if (frame.uc.stack.flags & kDisable)
        current->alt_stack = SigStack{};
    else if (!on_alternate(current->alt_stack, s.rsp)) // a thread that is still on it must not move it
        current->alt_stack = {frame.uc.stack.sp, frame.uc.stack.flags & kAutoDisarm, 0, frame.uc.stack.size};
    return static_cast<i64>(s.rax);
}

} // namespace gk
