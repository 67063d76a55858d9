// kvmserver top: shows what runs and how busy it is.
#include <fmt/format.h>

#include <unistd.h>

#include <chrono>
#include <thread>

#include "src/cli/platform/platform.hpp"

namespace kvmserver::cli {
namespace {

using namespace platform;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kStep{1};

struct Sample {
    json live;
    Clock::time_point at;
};

Sample take(Connection& platform) { return {platform.call("GET", "/v1/live").at("live"), Clock::now()}; }

std::uint64_t count(const json& one, const char* name) { return one.at(name).get<std::uint64_t>(); }

// Adds the changes since the previous sample.
void add_rates(Sample& now, const Sample& before) {
    const double seconds = std::chrono::duration<double>(now.at - before.at).count();
    for (json& one : now.live) {
        std::uint64_t requests = 0, duration = 0;
        for (const json& old : before.live)
            if (old.at("function") == one.at("function") && old.at("version") == one.at("version")) {
                requests = count(one, "requests") - count(old, "requests");
                duration = count(one, "duration_us") - count(old, "duration_us");
            }
        one["requests_per_second"] = static_cast<double>(requests) / seconds;
        one["mean_ms"] = requests ? static_cast<double>(duration) / 1000 / static_cast<double>(requests) : 0.0;
    }
}

std::string table(const Sample& sample) {
    std::string text =
        fmt::format("{:24} {:>7} {:8} {:>8} {:>9} {:>6} {:>6} {:>9} {:>9} {:>9}\n", "FUNCTION", "VERSION", "STATE",
                    "REQ/S", "MEAN MS", "BUSY", "QUEUED", "REQUESTS", "FAILED", "MEMORY");
    for (const json& one : sample.live)
        text += fmt::format("{:24} {:>7} {:8} {:>8.1f} {:>9.2f} {:>6} {:>6} {:>9} {:>9} {:>9}\n",
                            one.at("function").get<std::string>(), fmt::format("v{}", count(one, "version")),
                            one.at("state").get<std::string>(), one.at("requests_per_second").get<double>(),
                            one.at("mean_ms").get<double>(),
                            fmt::format("{}/{}", count(one, "busy"), count(one, "machines")), count(one, "queued"),
                            count(one, "requests"), count(one, "failed"), bytes_text(count(one, "memory_bytes")));
    return text;
}

// On a terminal until interrupted, otherwise one table.
int top(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "top", "", 0, 0);
    const auto platform = connect(invocation, context);
    const bool live = ::isatty(STDOUT_FILENO) != 0 && !flag(invocation, "json");
    for (Sample before = take(*platform);;) {
        std::this_thread::sleep_for(kStep);
        Sample now = take(*platform);
        add_rates(now, before);
        if (flag(invocation, "json"))
            print_json(context, {{"live", now.live}});
        else
            context.out << (live ? "\33[H\33[2J" : "") << table(now) << std::flush;
        if (!live)
            return 0;
        before = std::move(now);
    }
}

} // namespace

Command top_command() {
    return {.name = "top",
            .synopsis = "",
            .summary = "watch what runs",
            .operands = Operands::none,
            .options = options(),
            .action = top};
}

} // namespace kvmserver::cli
