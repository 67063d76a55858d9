// Tables for people: a header, aligned columns, two spaces between them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "src/cli/command.hpp"

namespace kvmserver::cli::platform {

inline constexpr OptionSpec kNoHeader{.name = "no-header", .group = "Options", .help = "only the rows of the table"};

class Table {
public:
    explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
    // As many cells as the header has. An empty cell is shown as "-".
    void add(std::vector<std::string> cells);
    // Without rows nothing, not even the header.
    void print(const Invocation& invocation, Context& context) const;

private:
    std::vector<std::vector<std::string>> rows_; // the first is the header
};

// How long ago `ms` (since 1970) was: "12 s ago", "5 min ago", "3 h ago", "2 days ago"; older than a month: the day.
std::string ago(std::int64_t ms, std::int64_t now_ms);
// The same of a time as the API writes it, "2026-11-21T03:00:09Z".
std::string ago(const std::string& time);
// How long until then: "in 3 days"; "expired" if it has passed.
std::string until(const std::string& time);

} // namespace kvmserver::cli::platform
