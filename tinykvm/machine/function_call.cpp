// Functions of the program that the host calls, and the other way round.
#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "tinykvm/abi/layout.hpp"
#include "tinykvm/machine/machine.hpp"
#include "tinykvm/machine/read_once.hpp"

namespace tinykvm {
bool Machine::ready_at(GuestVirt at) {
    constexpr std::array breakpoint{std::byte{0xcc}};
    const auto code = space_.load<std::byte>(at);
    if (!code || !space_.poke(at, breakpoint))
        return false;
    ready_at_ = at.value;
    ready_code_ = *code;
    return true;
}

// The program has reached that place: its code is whole again. False when there is no memory.
bool Machine::reached_ready() {
    const GuestVirt at(*ready_at_);
    ready_at_.reset();
    return space_.poke(at, std::span(&ready_code_, 1));
}

bool Machine::callable() const { return once(shared_->function_call.state) == abi::kCallable; }

GuestVirt Machine::free_stack() const { return GuestVirt(once(shared_->function_call.stack_end)); }

void Machine::call(const FunctionCall& call) {
    abi::FunctionCall& out = shared_->function_call;
    out.function = call.function.value;
    out.stack_top = call.stack_top.value;
    std::copy(call.integers.begin(), call.integers.end(), out.integers);
    std::copy(call.reals.begin(), call.reals.end(), out.reals);
    out.state = abi::kCallRequested;
}

Machine::Returned Machine::returned() const {
    return {once(shared_->function_call.result), once(shared_->function_call.real_result)};
}

std::optional<Stop> Machine::host_function(const abi::HostCall& call) {
    const auto result = host_->call_host(*this, call.arg[0], std::span(call.arg).subspan<1, 5>());
    if (!result)
        log_once(call.nr,
                 fmt::format("the program calls the host's function {}, which there is not: ENOSYS", call.arg[0]));
    shared_->call.result = result.value_or(-ENOSYS);
    if (host_->should_stop())
        return Stop{StopKind::interrupted, 0, {}};
    return std::nullopt;
}

} // namespace tinykvm
