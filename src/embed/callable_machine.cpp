#include "src/embed/callable_machine.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include <fmt/format.h>

#include "tinykvm/abi/layout.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::embed {

using namespace tinykvm;

namespace {

constexpr std::uint64_t kAlignment = 16;
// Buffers of more than this do not go on the stack, which may be small, but into memory of their own.
constexpr std::uint64_t kOnStack = 32 << 10;
constexpr std::uint64_t kMaxBuffer = std::uint64_t{1} << 40;

std::uint64_t aligned(std::uint64_t bytes) { return (bytes + kAlignment - 1) & ~(kAlignment - 1); }

bool is_program_memory(std::uint64_t at, std::uint64_t bytes) {
    return at < layout::kUserMax && bytes <= layout::kUserMax - at;
}

// The buffers of one call in the machine's memory.
class Placed {
public:
    Placed(AddressSpace& space, std::span<const Argument> arguments) : space_(space) {
        for (const Argument& argument : arguments)
            if (const auto* buffer = std::get_if<Buffer>(&argument)) {
                if (buffer->bytes > kMaxBuffer)
                    throw UserError(ExitCode::usage, fmt::format("an argument of {} bytes: at most {} are possible",
                                                                 buffer->bytes, kMaxBuffer));
                total_ += aligned(buffer->bytes);
            }
    }

    // Returns the new top of the stack; nullopt when there is no memory for them.
    std::optional<GuestVirt> make_room(GuestVirt stack) {
        if (total_ <= kOnStack) {
            next_ = (stack.value - total_) & ~std::uint64_t{63};
            return total_ < stack.value && is_program_memory(next_, total_) ? std::optional(GuestVirt(next_))
                                                                            : std::nullopt;
        }
        const std::int64_t at =
            space_.mmap(0, page_up(total_), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, nullptr, 0);
        if (at < 0)
            return std::nullopt;
        mapped_ = next_ = static_cast<std::uint64_t>(at);
        return stack;
    }

    // The address in the machine; nullopt when there is no memory.
    std::optional<std::uint64_t> put(const Buffer& buffer) {
        const GuestVirt at(next_);
        next_ += aligned(buffer.bytes);
        if (buffer.in) {
            if (!space_.write(at, {buffer.data, buffer.bytes}))
                return std::nullopt;
        } else if (mapped_ == 0 && !space_.write(at, std::vector<std::byte>(buffer.bytes))) {
            return std::nullopt;
        }
        if (buffer.out)
            out_.emplace_back(at, buffer);
        return at.value;
    }

    // False when the function has unmapped what it was given.
    bool take_results() {
        return std::ranges::all_of(out_, [&](const auto& each) {
            return space_.read(each.first, {each.second.data, each.second.bytes});
        });
    }

    void free() {
        if (mapped_ != 0)
            space_.munmap(std::exchange(mapped_, 0), page_up(total_));
    }

private:
    AddressSpace& space_;
    std::uint64_t total_ = 0, next_ = 0, mapped_ = 0;
    std::vector<std::pair<GuestVirt, Buffer>> out_;
};

void check_counts(std::span<const Argument> arguments) {
    const auto reals = std::ranges::count_if(
        arguments, [](const Argument& argument) { return std::holds_alternative<Real>(argument); });
    if (reals > 8)
        throw UserError(ExitCode::usage, "tinykvm_call: more than 8 real arguments");
    if (std::ssize(arguments) - reals > 6)
        throw UserError(ExitCode::usage, "tinykvm_call: more than 6 arguments that are not real");
}

// As C passes it.
double register_value(const Real& real) {
    return real.single
               ? std::bit_cast<double>(std::uint64_t{std::bit_cast<std::uint32_t>(static_cast<float>(real.value))})
               : real.value;
}

// nullopt when there is no memory.
std::optional<Machine::FunctionCall> place(GuestVirt stack, GuestVirt function, std::span<const Argument> arguments,
                                           Placed& placed) {
    const auto top = placed.make_room(stack);
    if (!top)
        return std::nullopt;
    Machine::FunctionCall call{.function = function, .stack_top = *top};
    auto integer = call.integers.begin();
    auto real = call.reals.begin();
    for (const Argument& argument : arguments) {
        if (const auto* given = std::get_if<Real>(&argument)) {
            *real++ = register_value(*given);
        } else if (const auto* value = std::get_if<std::uint64_t>(&argument)) {
            *integer++ = *value;
        } else {
            const auto at = placed.put(std::get<Buffer>(argument));
            if (!at)
                return std::nullopt;
            *integer++ = *at;
        }
    }
    return call;
}

Outcome stopped() {
    Outcome outcome;
    outcome.kind = OutcomeKind::stopped;
    outcome.message = "stopped by the host";
    return outcome;
}

MachineEnv env_of(const World& world, bool trial) {
    MachineEnv env = world.env;
    env.options.trial = trial;
    return env;
}

} // namespace

CallableMachine::CallableMachine(std::shared_ptr<const CallableImage> image, bool ephemeral, bool trial)
    : image_(std::move(image)), env_(env_of(image_->world(), trial)), ephemeral_(ephemeral),
      loop_(
          EventLoop::Own::dry, [this](const std::string& line) { image_->world().log(printable(line)); }, stopper_) {
    if (trial)
        loop_.set_output([](int, std::string_view) {});
    else if (image_->world().listener.output)
        loop_.set_output(image_->world().listener.output);
    env_.on_killed = [this](Machine&, int, int, std::uint64_t address) { killed_address_ = address; };
    loop_.set_host_functions([this](Machine&, std::uint64_t number, std::span<const std::uint64_t, 5> arguments) {
        const auto function = functions_.find(number);
        return function == functions_.end() ? std::nullopt : std::optional(function->second(arguments));
    });
    clone();
}

CallableMachine::~CallableMachine() = default;

void CallableMachine::clone() {
    machine_.reset();
    machine_ = Machine::clone(env_, image_->image(), loop_, image_->world().reset_strategy());
}

void CallableMachine::refuse_within_call(const char* what) const {
    if (in_call_)
        throw UserError(ExitCode::usage, fmt::format("{}: the machine is in a call; a function of the host can only "
                                                     "read and write its memory",
                                                     what));
}

void CallableMachine::set_host_function(unsigned number, HostFunction function) {
    refuse_within_call("tinykvm_host_call");
    if (function)
        functions_[number] = std::move(function);
    else
        functions_.erase(number);
}

Outcome CallableMachine::call(std::uint64_t function, std::span<const Argument> arguments, double seconds) {
    refuse_within_call("tinykvm_call");
    if (!machine_->callable())
        throw UserError(ExitCode::usage, "tinykvm_call: the machine's last call did not return; reset it first");
    constexpr double kMostSeconds = 1e9;
    if (!(seconds >= 0 && seconds <= kMostSeconds))
        throw UserError(ExitCode::usage, "tinykvm_call: the limit of time is not from 0 to 1e9 seconds");
    check_counts(arguments);
    machine_->space().begin_call();
    Placed placed(machine_->space(), arguments);
    Outcome outcome;
    if (stopper_.requested()) {
        stopper_.clear();
        outcome = stopped();
    } else if (const auto call = place(machine_->free_stack(), GuestVirt(function), arguments, placed)) {
        outcome = run(*call, seconds);
    } else {
        outcome.kind = OutcomeKind::no_memory;
        outcome.message = "the machine has no memory for the arguments; raise max-request-memory";
    }
    if (outcome.kind == OutcomeKind::returned && !placed.take_results()) {
        outcome.kind = OutcomeKind::broken;
        outcome.message = "the function has unmapped memory that it was given for results";
    }
    if (ephemeral_)
        reset();
    else
        placed.free();
    return outcome;
}

Outcome CallableMachine::run(const Machine::FunctionCall& call, double seconds) {
    const Limits& limits = env_.limits;
    EventLoop::Until until;
    until.returned = true;
    until.total_ns = static_cast<std::uint64_t>((seconds > 0 ? seconds : limits.request_seconds) * 1e9);
    until.cpu_ns = static_cast<std::uint64_t>(limits.request_cpu_seconds * 1e9);
    const std::uint64_t exits = machine_->exits();
    killed_address_ = 0;
    machine_->call(call);
    in_call_ = true;
    LoopEnd end;
    try {
        end = loop_.run(*machine_, until);
    } catch (...) {
        in_call_ = false;
        throw;
    }
    in_call_ = false;
    Outcome outcome = outcome_of(end);
    outcome.exits = machine_->exits() - exits;
    if (end == LoopEnd::timeout)
        outcome.message =
            loop_.overrun() == Overrun::cpu
                ? fmt::format("used more than {:.4g} s of CPU time (max-request-cpu)", limits.request_cpu_seconds)
                : fmt::format("did not return within {:.4g} s", static_cast<double>(until.total_ns) / 1e9);
    if (end == LoopEnd::requested)
        stopper_.clear();
    return outcome;
}

Outcome CallableMachine::outcome_of(LoopEnd end) const {
    Outcome outcome;
    switch (end) {
    case LoopEnd::returned: {
        const Machine::Returned returned = machine_->returned();
        outcome.integer = returned.integer;
        outcome.real = returned.real;
        return outcome;
    }
    case LoopEnd::stuck:
        outcome.kind = OutcomeKind::stuck;
        outcome.message = "all threads of the program wait for what will never come";
        return outcome;
    case LoopEnd::timeout: outcome.kind = OutcomeKind::timed_out; return outcome;
    case LoopEnd::requested: return stopped();
    default: break;
    }
    const Stop& stop = loop_.stop();
    outcome.number = stop.status;
    outcome.message = printable(stop.report);
    switch (stop.kind) {
    case StopKind::exited:
        outcome.kind = OutcomeKind::exited;
        outcome.message = fmt::format("the program exited with status {}", stop.status);
        break;
    case StopKind::killed:
        outcome.kind = OutcomeKind::killed;
        outcome.address = killed_address_;
        break;
    case StopKind::no_memory:
        outcome.kind = OutcomeKind::no_memory;
        outcome.message += "; raise max-request-memory, or max-main-memory";
        break;
    default: outcome.kind = OutcomeKind::broken; break;
    }
    return outcome;
}

void CallableMachine::reset() {
    refuse_within_call("tinykvm_reset");
    loop_.drop_connections(false);
    loop_.close_own_listeners();
    // A vCPU that cannot end its instruction is not used again.
    if (!machine_->settle()) {
        clone();
        return;
    }
    machine_->reset();
    machine_->prepare();
}

bool CallableMachine::read(std::uint64_t at, std::span<std::byte> to) {
    return is_program_memory(at, to.size()) && machine_->space().read(GuestVirt(at), to);
}

bool CallableMachine::write(std::uint64_t at, std::span<const std::byte> from) {
    return is_program_memory(at, from.size()) && machine_->space().write(GuestVirt(at), from);
}

std::optional<std::size_t> CallableMachine::read_string(std::uint64_t at, std::span<char> to) {
    if (to.empty() || at >= layout::kUserMax)
        return std::nullopt;
    const auto text = machine_->space().load_string(GuestVirt(at), to.size() - 1);
    if (text.error != 0 || !is_program_memory(at, text.value.size() + 1))
        return std::nullopt;
    std::ranges::copy(text.value, to.begin());
    to[text.value.size()] = '\0';
    return text.value.size();
}

} // namespace kvmserver::embed
