// A machine on which functions of its program are called.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "src/embed/callable_image.hpp"
#include "src/event_loop/event_loop.hpp"
#include "src/event_loop/stop.hpp"

namespace kvmserver::embed {

// An argument. Bytes are copied to the machine before the call (`in`), and from there after it (`out`), which then are
// `bytes` at `data`.
struct Buffer {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    bool in = false, out = false;
};
struct Real {
    double value;
    bool single; // it is passed as a float
};
using Argument = std::variant<std::uint64_t, Real, Buffer>;

enum class OutcomeKind { returned, killed, exited, timed_out, stuck, no_memory, broken, stopped };
struct Outcome {
    OutcomeKind kind = OutcomeKind::returned;
    int number = 0; // signal or exit status
    std::uint64_t address = 0;
    std::uint64_t integer = 0, real = 0; // RAX, and the lower half of XMM0
    std::uint64_t exits = 0;
    std::string message; // unless it returned
};

// For one thread at a time, but for stop(). Failures throw UserError (usage) or HostError.
class CallableMachine {
public:
    // `trial`: what it does has no effect outside.
    CallableMachine(std::shared_ptr<const CallableImage> image, bool ephemeral, bool trial = false);
    ~CallableMachine();

    using HostFunction = std::function<std::int64_t(std::span<const std::uint64_t, 5> arguments)>;
    void set_host_function(unsigned number, HostFunction function); // empty: none
    // `seconds`: limit by the clock; 0: max-request-time.
    Outcome call(std::uint64_t function, std::span<const Argument> arguments, double seconds);
    void stop() { stopper_.request(); }
    void reset();

    // Within what the program itself may access. False: not all of it.
    bool read(std::uint64_t at, std::span<std::byte> to);
    bool write(std::uint64_t at, std::span<const std::byte> from);
    // The length of a string of at most `room` - 1 bytes, copied with its NUL. nullopt: longer, or not readable.
    std::optional<std::size_t> read_string(std::uint64_t at, std::span<char> to);

    tinykvm::Machine& machine() { return *machine_; }

private:
    void clone();
    void refuse_within_call(const char* what) const;
    Outcome run(const tinykvm::Machine::FunctionCall& call, double seconds);
    Outcome outcome_of(LoopEnd end) const;

    std::shared_ptr<const CallableImage> image_;
    tinykvm::MachineEnv env_;
    bool ephemeral_;
    bool in_call_ = false;
    std::uint64_t killed_address_ = 0;
    Stopper stopper_;
    EventLoop loop_;
    std::map<std::uint64_t, HostFunction> functions_;
    std::unique_ptr<tinykvm::Machine> machine_;
};

} // namespace kvmserver::embed
