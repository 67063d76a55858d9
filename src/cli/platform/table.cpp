#include "src/cli/platform/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "src/cli/platform/platform.hpp"
#include "src/common/clock.hpp"
#include "src/common/time_text.hpp"
#include "src/ops/when.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli::platform {
namespace {

constexpr std::int64_t kSecond = 1000, kMinute = 60 * kSecond, kHour = 60 * kMinute, kDay = 24 * kHour;
constexpr std::int64_t kLongest = 31 * kDay; // later a date tells more

// Characters, not bytes: continuation bytes of UTF-8 take no room.
std::size_t width_of(const std::string& text) {
    return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string length_text(std::int64_t ms) {
    const auto text = [ms](std::int64_t unit, const char* name) { return fmt::format("{} {}", ms / unit, name); };
    if (ms < kMinute)
        return text(kSecond, "s");
    if (ms < kHour)
        return text(kMinute, "min");
    if (ms < kDay)
        return text(kHour, "h");
    return text(kDay, ms < 2 * kDay ? "day" : "days");
}

// Nothing for the times of a clock that is far off, which have no text ("?").
std::optional<std::int64_t> parsed(const std::string& time, std::int64_t now) {
    try {
        return ops::time_from(time, now);
    } catch (const tinykvm::UserError&) {
        return std::nullopt;
    }
}

std::string day_of(std::int64_t ms) { return time_text(ms).substr(0, 10); }

} // namespace

void Table::add(std::vector<std::string> cells) {
    for (std::string& cell : cells)
        if (cell.empty())
            cell = "-";
    rows_.push_back(std::move(cells));
}

void Table::print(const Invocation& invocation, Context& context) const {
    if (rows_.size() == 1)
        return;
    std::vector<std::size_t> widths(rows_.front().size(), 0);
    const std::size_t first = flag(invocation, kNoHeader.name) ? 1 : 0;
    for (std::size_t i = first; i < rows_.size(); ++i)
        for (std::size_t column = 0; column < widths.size(); ++column)
            widths[column] = std::max(widths[column], width_of(rows_[i][column]));
    for (std::size_t i = first; i < rows_.size(); ++i) {
        std::string line;
        for (std::size_t column = 0; column < widths.size(); ++column) {
            const std::string& cell = rows_[i][column];
            line += cell + std::string(widths[column] - width_of(cell) + 2, ' ');
        }
        context.out << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
    }
}

std::string ago(std::int64_t ms, std::int64_t now_ms) {
    const std::int64_t length = std::max<std::int64_t>(now_ms - ms, 0);
    return length > kLongest ? day_of(ms) : length_text(length) + " ago";
}

std::string ago(const std::string& time) {
    const std::int64_t now = now_ms();
    const auto then = parsed(time, now);
    return then ? ago(*then, now) : time;
}

std::string until(const std::string& time) {
    const std::int64_t now = now_ms();
    const auto parsed_time = parsed(time, now);
    if (!parsed_time)
        return time;
    const std::int64_t then = *parsed_time;
    if (then <= now)
        return "expired";
    return then - now > kLongest ? "on " + day_of(then) : "in " + length_text(then - now);
}

} // namespace kvmserver::cli::platform
