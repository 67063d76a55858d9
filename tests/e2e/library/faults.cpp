// What a function can do instead of returning, and that a machine is clean afterwards.
#include <chrono>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

#include "tests/e2e/library/cases.hpp"
#include "tinykvm/abi/guest_kernel.hpp"
#include "tinykvm/abi/layout.hpp"

using cases::error_of;
using cases::has;
using cases::image;
using std::chrono::duration;
using tinykvm::Address;
using tinykvm::Kind;
using tinykvm::Machine;
using tinykvm::Out;

namespace {

// Calls it on a machine of each kind, and checks that the machine then is as new.
void check_fault(const std::string& what, tinykvm_outcome_kind kind,
                 const std::function<tinykvm::Fault(Machine&)>& fault_of) {
    for (const Kind each : {Kind::keeps_state, Kind::ephemeral}) {
        INFO(what);
        Machine machine(image(), each);
        const auto count = image().function<int()>("count");
        REQUIRE(*machine.call(count) == 201);
        const tinykvm::Fault fault = fault_of(machine);
        INFO(fault.message);
        CHECK(fault.kind == kind);
        CHECK_FALSE(fault.message.empty());
        if (each == Kind::keeps_state) {
            CHECK(has(error_of(TINYKVM_ERROR_USAGE, [&] { machine.call(count); }), "reset it first"));
            machine.reset();
        }
        CHECK(*machine.call(count) == 201);
    }
}

template <class... P, class... A>
auto fault(const tinykvm::Function<void(P...)>& function, A... arguments) {
    return [=](Machine& machine) {
        const auto result = machine.call(function, arguments...);
        REQUIRE_FALSE(result);
        return result.fault();
    };
}

} // namespace

TEST_CASE("signals") {
    const auto touch = image().function<void(Address)>("touch");
    check_fault("null", TINYKVM_KILLED, [&](Machine& machine) {
        const auto result = machine.call(touch, Address{8});
        REQUIRE_FALSE(result);
        CHECK(result.fault().number == 11);
        CHECK(result.fault().address == Address{8});
        CHECK(has(result.fault().message, "touch"));
        return result.fault();
    });
    check_fault("read-only", TINYKVM_KILLED, fault(touch, image().symbol("touch")));
    check_fault("in the guest kernel", TINYKVM_KILLED, fault(touch, Address{0x7ff0'0000'0000}));
    check_fault("division", TINYKVM_KILLED, fault(image().function<void(int, int)>("divide"), 1, 0));
    check_fault("abort", TINYKVM_KILLED, fault(image().function<void()>("give_up")));
    check_fault("stack", TINYKVM_KILLED, fault(image().function<void(int)>("deeper"), 1));
}

TEST_CASE("a function that is none") {
    for (const std::uint64_t at : {std::uint64_t{0}, std::uint64_t{1} << 40, std::uint64_t{1} << 63, ~std::uint64_t{0},
                                   image().symbol("counter").value})
        check_fault("address " + std::to_string(at), TINYKVM_KILLED, fault(tinykvm::Function<void()>(Address{at})));
}

TEST_CASE("the end of the program") {
    check_fault("exit", TINYKVM_EXITED, [](Machine& machine) {
        const auto result = machine.call(image().function<void(int)>("leave"), 9);
        REQUIRE_FALSE(result);
        CHECK(result.fault().number == 9);
        return result.fault();
    });
    check_fault("pthread_exit", TINYKVM_EXITED, fault(image().function<void()>("leave_thread")));
}

TEST_CASE("time") {
    const auto limited = [](const duration<double> limit, const auto& function, auto... arguments) {
        return [=](Machine& machine) {
            const auto result = machine.call_for(limit, function, arguments...);
            REQUIRE_FALSE(result);
            return result.fault();
        };
    };
    const duration<double> limit(0.05 * cases::slowness());
    check_fault("computes", TINYKVM_TIMED_OUT, limited(limit, image().function<void()>("spin")));
    check_fault("sleeps", TINYKVM_TIMED_OUT, limited(limit, image().function<long(int)>("nap"), 1'000'000));
    check_fault("waits for nothing", TINYKVM_STUCK,
                limited(duration<double>(60), image().function<void()>("wait_for_nothing")));
    Machine machine(image());
    CHECK(*machine.call(image().function<unsigned long(int)>("nap"), 20) == 0);
    error_of(TINYKVM_ERROR_USAGE, [&] { machine.call_for(duration<double>(-1), image().function<int()>("count")); });
}

TEST_CASE("CPU time") {
    const auto booted = tinykvm::Image::boot(
        cases::program(cases::callee()).set("max-request-cpu", std::to_string(0.05 * cases::slowness())));
    Machine machine(booted, Kind::ephemeral);
    const auto result = machine.call(booted.function<void()>("spin"));
    REQUIRE_FALSE(result);
    CHECK(result.fault().kind == TINYKVM_TIMED_OUT);
    CHECK(has(result.fault().message, "max-request-cpu"));
    CHECK(*machine.call(booted.function<unsigned long(int)>("nap"), 200) == 0); // that uses none
}

TEST_CASE("memory") {
    const auto eat = image().function<void(unsigned long)>("eat");
    check_fault("too much", TINYKVM_NO_MEMORY, fault(eat, 1000ul));
    Machine machine(image(), Kind::ephemeral);
    for (int i = 0; i < 5; ++i)
        CHECK(machine.call(eat, 100ul));
}

TEST_CASE("machines that are broken on purpose") {
    check_fault("IN", TINYKVM_BROKEN, fault(image().function<void()>("read_port")));
    std::vector<unsigned char> to(1 << 20);
    // It has returned, so the machine goes on.
    Machine machine(image());
    const auto unmap_it = image().function<int(Out<unsigned char>, unsigned long)>("unmap_it");
    const auto result = machine.call(unmap_it, Out<unsigned char>{to}, to.size());
    REQUIRE_FALSE(result);
    CHECK(result.fault().kind == TINYKVM_BROKEN);
    CHECK(has(result.fault().message, "unmapped"));
    CHECK(*machine.call(image().function<int()>("count")) == 201);
}

TEST_CASE("the host does not trust what it shares with the guest kernel") {
    const auto put = image().function<void(Address, std::uint64_t)>("put");
    const auto length = image().function<unsigned long(std::string_view)>("length");
    constexpr std::uint64_t kShared = tinykvm::layout::kShared + offsetof(tinykvm::abi::Shared, function_call);
    Machine machine(image());
    for (std::size_t field = 0; field < sizeof(tinykvm::abi::FunctionCall) / 8; ++field)
        for (const std::uint64_t value : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{2},
                                          std::uint64_t{0x7ff0'0000'0000}, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
            INFO(field << ": " << value);
            try {
                machine.call_for(duration<double>(5 * cases::slowness()), put, Address{kShared + 8 * field}, value);
                machine.call(length, "hello");
            } catch (const tinykvm::Error& error) { // it had not returned
                CHECK(error.code() == TINYKVM_ERROR_USAGE);
            }
            machine.reset();
            REQUIRE(*machine.call(length, "hello") == 5);
        }
    // While the guest kernel waits, the host takes the program for ready.
    const auto put_and_nap = image().function<void(Address, std::uint64_t, int)>("put_and_nap");
    for (const std::uint64_t stack_end :
         {std::uint64_t{0}, std::uint64_t{64}, std::uint64_t{0x7ff0'0410'0800}, ~std::uint64_t{0}}) {
        INFO(stack_end);
        (void)machine.call_for(duration<double>(5 * cases::slowness()), put_and_nap,
                               Address{kShared + offsetof(tinykvm::abi::FunctionCall, stack_end)}, stack_end,
                               static_cast<int>(tinykvm::abi::kCallable));
        try {
            (void)machine.call_for(duration<double>(0.2 * cases::slowness()), length, "hello");
        } catch (const tinykvm::Error&) {
        }
        machine.reset();
        REQUIRE(*machine.call(length, "hello") == 5);
    }
}

TEST_CASE("another thread stops a call") {
    Machine machine(image());
    std::thread stopper([&] { machine.stop(); });
    const auto result = machine.call_for(duration<double>(1000), image().function<void()>("spin"));
    stopper.join();
    REQUIRE_FALSE(result);
    CHECK(result.fault().kind == TINYKVM_STOPPED);
    machine.reset();
    CHECK(*machine.call(image().function<int()>("count")) == 201);
}

TEST_CASE("a stop between two calls ends the next one before it begins") {
    for (const Kind kind : {Kind::keeps_state, Kind::ephemeral}) {
        Machine machine(image(), kind);
        const auto count = image().function<int()>("count");
        machine.stop();
        machine.stop();
        const auto result = machine.call(count);
        REQUIRE_FALSE(result);
        CHECK(result.fault().kind == TINYKVM_STOPPED);
        CHECK(*machine.call(count) == 201); // it needs no reset
    }
}

TEST_CASE("a function that says it is ready goes on") {
    Machine machine(image());
    CHECK(*machine.call(image().function<long()>("ready_again")) == -16);
    CHECK(*machine.call(image().function<int()>("count")) == 201);
}
