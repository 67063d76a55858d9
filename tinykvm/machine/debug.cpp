// A machine with a debugger. The program always stops within the guest kernel, on the way back to the program: the
// registers of every thread are in memory then, on every kind of host. INT3 and single steps reach the host as any
// exception does, so that nothing of KVM_SET_GUEST_DEBUG is needed.
#include "tinykvm/abi/layout.hpp"
#include "tinykvm/machine/debug_target.hpp"
#include "tinykvm/machine/debugger.hpp"
#include "tinykvm/machine/machine.hpp"

namespace tinykvm {
namespace {

constexpr std::uint64_t kDebugException = 1, kBreakpointException = 3;
constexpr std::uint64_t kTrapFlag = 0x100;

} // namespace

bool Machine::attach(Debugger& debugger) {
    debugger_ = &debugger;
    return !image_ || space_.undo_all_patches();
}

void Machine::set_preempt(std::uint32_t clear, std::uint32_t set) {
    shared_->preempt = (shared_->preempt & ~clear) | set;
}

void Machine::stop_soon() {
    stop_reason_.kind = debug::StopReason::Kind::first;
    set_preempt(0, abi::kPreemptStop);
}

std::optional<Stop> Machine::stop_waiting() { return debug_stop({debug::StopReason::Kind::asked, 0}); }

// Stops the program and applies what the debugger wants.
std::optional<Stop> Machine::debug_stop(const debug::StopReason& reason) {
    set_preempt(abi::kPreemptStop | abi::kPreemptStep, abi::kPreemptAttached);
    step_ = {};
    const debug::Resume resume = debugger_->stopped(*this, reason);
    debug_signal_ = resume.with_signal;
    switch (resume.kind) {
    case debug::Resume::Kind::go_on: break;
    case debug::Resume::Kind::step:
        step_.active = true;
        step_.others_wait = resume.others_wait;
        shared_->debug_thread = resume.thread;
        if (resume.thread == 0)
            if (const auto threads = DebugTarget(*this).threads(); !threads.empty())
                shared_->debug_thread = threads.front().id;
        set_preempt(0, abi::kPreemptStep);
        break;
    case debug::Resume::Kind::detach:
        set_preempt(abi::kPreemptAttached, 0);
        debug_signal_ = true;
        break;
    case debug::Resume::Kind::kill: return Stop{StopKind::killed, 9, kEndedByDebugger};
    }
    return std::nullopt;
}

std::optional<Stop> Machine::on_debug_call(const abi::HostCall& call, std::int64_t& result) {
    result = 0;
    if (!debugger_)
        return std::nullopt;
    debug::StopReason reason = stop_reason_;
    stop_reason_ = {debug::StopReason::Kind::asked, 0};
    if (call.arg[0] == abi::kStopSignal)
        reason = {debug::StopReason::Kind::signal, static_cast<int>(call.arg[1] & 0x7f)};
    auto stop = debug_stop(reason);
    result = debug_signal_ ? static_cast<std::int64_t>(call.arg[1] & 0x7f) : 0;
    return stop;
}

// The program continues in the guest kernel, which makes the host call.
void Machine::enter_debug_stop(debug::StopReason::Kind kind, std::uint64_t rip) {
    set_preempt(abi::kPreemptStep, 0);
    step_ = {};
    stop_reason_ = {kind, 0};
    space_.store(GuestVirt(kernel_.entry_rip), rip);
    shared_->fault_vector = abi::kDebugVector;
}

// An exception that is the debugger's business: true, with `frame` changed to where the vCPU continues.
bool Machine::debug_exception(abi::ExceptionFrame& frame) {
    const auto go_on = [&](bool trap) {
        frame.rflags = (frame.rflags & ~kTrapFlag) | (trap ? kTrapFlag : 0);
        return true;
    };
    const auto stop = [&](debug::StopReason::Kind kind, std::uint64_t rip) {
        enter_debug_stop(kind, rip);
        frame.rip = kernel_.fault_entry;
        return go_on(false);
    };
    if (frame.vector == kBreakpointException && (frame.cs & 3) == 3 && debugger_->breakpoint_at(frame.rip - 1))
        return stop(debug::StopReason::Kind::breakpoint, frame.rip - 1);
    if (frame.vector != kDebugException || !step_.active)
        return false;
    const abi::DebugTable table =
        space_.load<abi::DebugTable>(GuestVirt(layout::kKernelImage + kernel_.debug_table)).value_or(abi::DebugTable{});
    const auto begin = reinterpret_cast<std::uint64_t>(table.resume_begin);
    const auto end = reinterpret_cast<std::uint64_t>(table.resume_end);
    // The last instructions of the guest kernel, which has set the flag. The next trap is at the program's instruction.
    if (frame.rip > begin && frame.rip < end) {
        step_.arriving = true;
        return go_on(true);
    }
    // The step has entered the guest kernel, by a jump in place of a system call: the kernel sets the flag again when
    // it returns to this thread.
    if ((frame.cs & 3) != 3 || (frame.rip >= kernel_.text_begin && frame.rip < kernel_.supervisor_end))
        return go_on(false);
    if (step_.arriving) {
        step_.arriving = false;
        if (!std::exchange(step_.begun, true))
            return go_on(true); // nothing is executed yet
    }
    if (space_.is_stub(frame.rip))
        return go_on(true);
    return stop(debug::StopReason::Kind::stepped, frame.rip);
}

// A tick while the guest kernel runs: threads change when it returns, unless the debugger wants otherwise.
void Machine::tick_in_kernel() {
    if (!debugger_ || !debug_tick(false))
        set_preempt(0, abi::kPreemptYield);
}

// A tick. True if the time slice is not to end: the program stops for the debugger, or one thread alone steps.
bool Machine::debug_tick(bool in_program) {
    if (!debugger_->wants_stop())
        return step_.active && step_.others_wait; // no preemption
    stop_reason_ = {debug::StopReason::Kind::asked, 0};
    if (!in_program) {
        set_preempt(0, abi::kPreemptStop);
        return true;
    }
    enter_debug_stop(debug::StopReason::Kind::asked, vcpu_.regs().rip);
    vcpu_.regs().rip = kernel_.fault_entry;
    vcpu_.regs().rflags &= ~kTrapFlag;
    vcpu_.regs_changed();
    return true;
}

} // namespace tinykvm
