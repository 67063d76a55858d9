#include "src/cli/platform/top_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <tuple>

#include "src/cli/platform/platform.hpp"

namespace kvmserver::cli::platform {
namespace {

struct Column {
    const char* name;
    int width; // negative: to the left
    std::string (*cell)(const TopRow&);
};

std::string rate(const std::optional<double>& value, int digits) {
    return value ? fmt::format("{:.{}f}", *value, digits) : "-";
}

constexpr std::array<Column, kTopColumns> kColumns{{
    {"FUNCTION", -24, [](const TopRow& row) { return row.function; }},
    {"VERSION", 8, [](const TopRow& row) { return fmt::format("v{}", row.version); }},
    {"STATE", -8, [](const TopRow& row) { return row.state; }},
    {"REQ/S", 8, [](const TopRow& row) { return rate(row.requests_per_second, 1); }},
    {"ERR/S", 8, [](const TopRow& row) { return rate(row.errors_per_second, 1); }},
    {"MEAN MS", 9, [](const TopRow& row) { return rate(row.mean_ms, 2); }},
    {"BUSY", 6, [](const TopRow& row) { return fmt::format("{}/{}", row.busy, row.machines); }},
    {"QUEUED", 7, [](const TopRow& row) { return std::to_string(row.queued); }},
    {"REQUESTS", 9, [](const TopRow& row) { return std::to_string(row.requests); }},
    {"FAILED", 9, [](const TopRow& row) { return std::to_string(row.failed); }},
    {"MEMORY", 9, [](const TopRow& row) { return bytes_text(row.memory_bytes); }},
}};

std::string padded(const std::string& cell, int width) {
    return width < 0 ? fmt::format("{:<{}}", cell, -width) : fmt::format("{:>{}}", cell, width);
}

std::string joined(const std::array<std::string, kTopColumns>& cells) {
    std::string line;
    for (std::size_t i = 0; i < kTopColumns; ++i)
        line += (i ? " " : "") + padded(cells[i], kColumns[i].width);
    return line.substr(0, line.find_last_not_of(' ') + 1);
}

std::string header(std::optional<TopColumn> by) {
    std::array<std::string, kTopColumns> cells;
    for (std::size_t i = 0; i < kTopColumns; ++i)
        cells[i] = kColumns[i].name + std::string(by && static_cast<std::size_t>(*by) == i ? "*" : "");
    return joined(cells);
}

// What a row is sorted by: less comes first.
using SortKey = std::tuple<double, double, double>;
SortKey key_of(const TopRow& row, TopColumn by) {
    const auto down = [](auto value) { return SortKey{-static_cast<double>(value), 0, 0}; };
    switch (by) {
    case TopColumn::function:
    case TopColumn::state: return {};
    case TopColumn::version: return down(row.version);
    case TopColumn::requests_per_second: return down(row.requests_per_second.value_or(0));
    case TopColumn::errors:
        return {row.state == "failing" ? 0 : 1, -row.errors_per_second.value_or(0),
                -row.requests_per_second.value_or(0)};
    case TopColumn::mean: return down(row.mean_ms.value_or(0));
    case TopColumn::busy: return down(row.busy);
    case TopColumn::queued: return down(row.queued);
    case TopColumn::requests: return down(row.requests);
    case TopColumn::failed: return down(row.failed);
    case TopColumn::memory: return down(row.memory_bytes);
    }
    return {};
}

std::string summary(const std::vector<TopRow>& rows) {
    double requests = 0, errors = 0;
    std::set<std::string> functions, failing;
    bool known = false;
    for (const TopRow& row : rows) {
        known |= row.requests_per_second.has_value();
        requests += row.requests_per_second.value_or(0);
        errors += row.errors_per_second.value_or(0);
        functions.insert(row.function);
        if (row.failing())
            failing.insert(row.function);
    }
    const std::string rates = known ? fmt::format(", {:.1f} requests/s, {:.1f} errors/s", requests, errors) : "";
    return fmt::format("{} functions, {} failing{}", functions.size(), failing.size(), rates);
}

} // namespace

TopColumn next_column(TopColumn column, int steps) {
    const int count = static_cast<int>(kTopColumns);
    return static_cast<TopColumn>(((static_cast<int>(column) + steps) % count + count) % count);
}

void sort_rows(std::vector<TopRow>& rows, TopColumn by) {
    std::ranges::sort(rows, [&](const TopRow& a, const TopRow& b) {
        const auto text = [&](const TopRow& row) { return by == TopColumn::state ? row.state : std::string(); };
        return std::tuple(key_of(a, by), text(a), a.function, a.version) <
               std::tuple(key_of(b, by), text(b), b.function, b.version);
    });
}

std::string top_header() { return header(std::nullopt); }

std::string top_line(const TopRow& row) {
    std::array<std::string, kTopColumns> cells;
    for (std::size_t i = 0; i < kTopColumns; ++i)
        cells[i] = kColumns[i].cell(row);
    return joined(cells);
}

std::vector<std::string> top_screen(const std::vector<TopRow>& rows, TopColumn by, Window window, bool colour) {
    const auto shown = [&](const std::string& text, const char* style) {
        const std::string cut = text.substr(0, window.columns); // names are ASCII
        return colour && *style ? fmt::format("\33[{}m{}\33[0m", style, cut) : cut;
    };
    constexpr std::size_t kOthers = 3; // lines that are no rows
    const std::size_t room = window.rows > kOthers ? window.rows - kOthers : 0;
    std::vector<std::string> lines{shown(summary(rows), ""), shown(header(by), "1")};
    for (std::size_t i = 0; i < std::min(room, rows.size()); ++i)
        lines.push_back(shown(top_line(rows[i]), rows[i].failing() ? "31" : ""));
    const std::string more = rows.size() > room ? fmt::format("{} more   ", rows.size() - room) : "";
    lines.push_back(shown(more + "q: end   s, arrows: sort by another column", "2"));
    if (lines.size() > window.rows) // what matters less goes first
        lines.resize(window.rows);
    return lines;
}

} // namespace kvmserver::cli::platform
