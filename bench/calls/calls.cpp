// What a call of a program's function costs through the library: on a machine that keeps its state, on one that is
// reset after every call, and without a machine. Batches alternate, so that all see the same host; medians of the
// batches. One line of JSON for each function.
//   build/bench/calls/calls
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include <tinykvm/tinykvm.hpp>

#include "bench/calls/callee.h"

namespace {

constexpr int kBatches = 200, kCalls = 100;

struct Times {
    std::vector<double> us; // of a call, by batch
    std::uint64_t exits = 0;
    double median() {
        std::ranges::nth_element(us, us.begin() + kBatches / 2);
        return us[kBatches / 2];
    }
    double exits_of_a_call() const { return static_cast<double>(exits) / (kBatches * kCalls); }
};

// `call` returns how often it left a machine.
template <class Call>
void batch(Times& times, const Call& call) {
    const auto begin = std::chrono::steady_clock::now();
    std::uint64_t exits = 0;
    for (int i = 0; i < kCalls; ++i)
        exits += call();
    const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - begin;
    times.us.push_back(spent.count() / kCalls);
    times.exits += exits;
}

template <class Native, class Call>
void compare(const char* what, tinykvm::Machine& keeps, tinykvm::Machine& clean, const Native& native,
             const Call& call) {
    Times bare, kept, ephemeral, warm;
    for (tinykvm::Machine* machine : {&keeps, &clean})
        batch(warm, [&] { return call(*machine); });
    for (int i = 0; i < kBatches; ++i) {
        batch(bare, native);
        batch(kept, [&] { return call(keeps); });
        batch(ephemeral, [&] { return call(clean); });
    }
    const double before = kept.median(), after = ephemeral.median();
    std::printf(
        "{\"function\": \"%s\", \"native_us\": %.3f, \"keeps_us\": %.2f, \"ephemeral_us\": %.2f, \"ratio\": %.3f, "
        "\"keeps_exits\": %.3f, \"ephemeral_exits\": %.3f}\n",
        what, bare.median(), before, after, after / before, kept.exits_of_a_call(), ephemeral.exits_of_a_call());
}

std::uint64_t exits_of(const auto& result) {
    (void)result.value(); // throws unless it returned
    return result.exits();
}

} // namespace

int main() {
    const std::string callee = (std::filesystem::canonical("/proc/self/exe").parent_path() / "callee").string();
    const auto image = tinykvm::Image::boot(tinykvm::Program(callee));
    tinykvm::Machine keeps(image), clean(image, tinykvm::Kind::ephemeral);
    volatile std::size_t sink = 0; // what is not used is not computed

    const auto count = image.function<int()>("count");
    compare(
        "count", keeps, clean, [&] { return sink = static_cast<std::size_t>(bench_count()), std::uint64_t{0}; },
        [&](tinykvm::Machine& machine) { return exits_of(machine.call(count)); });

    std::array<char, 4096> out{};
    const auto page = image.function<std::size_t(std::string_view, tinykvm::Out<char>, std::size_t)>("page");
    compare(
        "page", keeps, clean, [&] { return sink = bench_page("Ada", out.data(), out.size()), std::uint64_t{0}; },
        [&](tinykvm::Machine& machine) {
            return exits_of(machine.call(page, "Ada", tinykvm::Out<char>{out}, out.size()));
        });
}
