// What `kvmserver top` shows: rows, their order, and how they fit into a window.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kvmserver::cli::platform {

struct TopRow {
    std::string function, state;
    std::uint64_t version = 0;
    // Since the sample before; nothing: there is none yet.
    std::optional<double> requests_per_second, errors_per_second, mean_ms;
    std::uint64_t busy = 0, machines = 0, queued = 0, requests = 0, failed = 0, memory_bytes = 0;
    // The function cannot be served now, or requests failed since the sample before.
    bool failing() const { return state == "failing" || errors_per_second.value_or(0) > 0; }
};

// The columns in the order of the table. errors: failing rows first, and those with the most requests before others, so
// that what matters most is on top.
enum class TopColumn {
    function,
    version,
    state,
    requests_per_second,
    errors,
    mean,
    busy,
    queued,
    requests,
    failed,
    memory
};
inline constexpr unsigned kTopColumns = static_cast<unsigned>(TopColumn::memory) + 1;

// The column `steps` further to the right (or left), as on a ring.
TopColumn next_column(TopColumn column, int steps);
// Names ascend, numbers descend. Equal rows are by name and version.
void sort_rows(std::vector<TopRow>& rows, TopColumn by);

// The header and a row each, without a newline.
std::string top_header();
std::string top_line(const TopRow& row);

struct Window {
    std::size_t columns = 80, rows = 24;
};

// Lines for the whole window: a summary, the header with a * at the column that `rows` are sorted by, as many rows as
// fit, and the keys. `colour`: with escape sequences; failing rows are red.
std::vector<std::string> top_screen(const std::vector<TopRow>& rows, TopColumn by, Window window, bool colour);

} // namespace kvmserver::cli::platform
