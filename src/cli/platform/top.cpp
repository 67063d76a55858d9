// kvmserver top: shows what runs and how busy it is.
#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "src/cli/platform/platform.hpp"
#include "src/cli/platform/screen.hpp"
#include "src/cli/platform/top_table.hpp"

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

// Since the sample before. A new daemon counts from 0.
std::uint64_t grown(const json& now, const json& before, const char* name) {
    const std::uint64_t a = count(before, name), b = count(now, name);
    return b >= a ? b - a : b;
}

// Adds the changes since the previous sample.
void add_rates(Sample& now, const Sample& before) {
    const double seconds = std::chrono::duration<double>(now.at - before.at).count();
    for (json& one : now.live) {
        std::uint64_t requests = 0, failed = 0, duration = 0;
        for (const json& old : before.live)
            if (old.at("function") == one.at("function") && old.at("version") == one.at("version")) {
                requests = grown(one, old, "requests");
                failed = grown(one, old, "failed");
                duration = grown(one, old, "duration_us");
            }
        one["requests_per_second"] = static_cast<double>(requests) / seconds;
        one["errors_per_second"] = static_cast<double>(failed) / seconds;
        one["mean_ms"] = requests ? static_cast<double>(duration) / 1000 / static_cast<double>(requests) : 0.0;
    }
}

std::vector<TopRow> rows_of(const Sample& sample) {
    std::vector<TopRow> rows;
    for (const json& one : sample.live) {
        TopRow& row = rows.emplace_back();
        const auto rate = [&](const char* name) {
            return one.contains(name) ? std::optional(one.at(name).get<double>()) : std::nullopt;
        };
        row.function = one.at("function").get<std::string>();
        row.state = one.at("state").get<std::string>();
        row.version = count(one, "version");
        row.requests_per_second = rate("requests_per_second");
        row.errors_per_second = rate("errors_per_second");
        row.mean_ms = rate("mean_ms");
        row.busy = count(one, "busy");
        row.machines = count(one, "machines");
        row.queued = count(one, "queued");
        row.requests = count(one, "requests");
        row.failed = count(one, "failed");
        row.memory_bytes = count(one, "memory_bytes");
    }
    return rows;
}

// Until somebody presses q.
void watch(Connection& platform) {
    Sample sample = take(platform); // before the screen changes: an error leaves it as it is
    TopColumn by = TopColumn::errors;
    std::vector<TopRow> rows = rows_of(sample);
    Screen screen;
    const bool colour = has_colours();
    for (auto next = Clock::now() + kStep;;) {
        sort_rows(rows, by);
        const Screen::Size size = screen.size();
        screen.show(top_screen(rows, by, {size.columns, size.rows}, colour));
        const Screen::Press press = screen.wait(next);
        if (press.key == Key::ended || press.letter == 'q' || press.letter == 'Q')
            return;
        if (press.key == Key::right || press.letter == 's')
            by = next_column(by, 1);
        else if (press.key == Key::left || press.letter == 'S')
            by = next_column(by, -1);
        if (Clock::now() < next)
            continue;
        Sample now = take(platform);
        add_rates(now, sample);
        sample = std::move(now);
        rows = rows_of(sample);
        next = Clock::now() + kStep;
    }
}

// On a terminal until it is ended, otherwise one table.
int top(const Invocation& invocation, Context& context) {
    expect_operands(invocation, "top", "", 0, 0);
    const auto platform = connect(invocation, context);
    if (has_screen() && !flag(invocation, "json")) {
        watch(*platform);
        return 0;
    }
    const Sample before = take(*platform);
    std::this_thread::sleep_for(kStep);
    Sample now = take(*platform);
    add_rates(now, before);
    if (flag(invocation, "json")) {
        print_json(context, {{"live", now.live}});
        return 0;
    }
    context.out << top_header() << '\n';
    for (const TopRow& row : rows_of(now))
        context.out << top_line(row) << '\n';
    context.out << std::flush;
    return 0;
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
