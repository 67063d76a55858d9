#include "src/store/functions/event.hpp"

#include <fmt/format.h>

#include "src/common/clock.hpp"
#include "src/store/errors.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::store {

namespace {

std::optional<std::int64_t> size_column(std::optional<std::uint64_t> bytes) {
    return bytes ? std::optional(static_cast<std::int64_t>(*bytes)) : std::nullopt;
}

std::optional<std::uint64_t> size_in(const Statement& row, int column) {
    return row.is_null(column) ? std::nullopt : std::optional(row.natural(column));
}

} // namespace

const char* name_of(Action action) {
    switch (action) {
    case Action::deploy: return "deploy";
    case Action::rollback: return "rollback";
    case Action::traffic: return "traffic";
    case Action::set_routes: return "set-routes";
    case Action::set_state: return "set-state";
    case Action::set_env: return "set-env";
    case Action::unset_env: return "unset-env";
    case Action::set_secret: return "set-secret";
    case Action::unset_secret: return "unset-secret";
    case Action::delete_version: return "delete-version";
    case Action::migrate: return "migrate";
    case Action::take_over: return "take-over";
    case Action::gc: break;
    }
    return "gc";
}

void check_message(std::string_view message) {
    if (message.size() > kMaxMessage)
        throw BadValue(fmt::format("message: it has {} bytes, more than {}", message.size(), kMaxMessage));
    if (tinykvm::printable(message) != message)
        throw BadValue("message: it must be one line of UTF-8 text without control characters");
}

void insert_event_row(Database& database, std::int64_t function, const Event& event) {
    database
        .prepare("INSERT INTO event (function, time, by_token, author, tenant, action, subject, change, message, "
                 "bytes, new_bytes) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
        .bind(function)
        .bind(event.time)
        .bind(std::int64_t{event.author.token})
        .bind(event.author.name)
        .bind(event.author.tenant)
        .bind(event.action)
        .bind(event.subject)
        .bind(event.change)
        .bind(event.message)
        .bind(size_column(event.bytes))
        .bind(size_column(event.new_bytes))
        .run();
}

void insert_event(Database& database, std::int64_t function, Event event) {
    check_message(event.message);
    event.time = now_ms();
    insert_event_row(database, function, event);
    database
        .prepare("DELETE FROM event WHERE function = ?1 AND id <= "
                 "(SELECT id FROM event WHERE function = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)")
        .bind(function)
        .bind(std::uint64_t{kMaxEvents})
        .run();
}

std::vector<Event> load_events(const Database& database, std::int64_t function) {
    std::vector<Event> events;
    auto rows = database.prepare("SELECT time, by_token, author, tenant, action, subject, change, message, bytes, "
                                 "new_bytes FROM event WHERE function = ? ORDER BY id DESC");
    for (rows.bind(function); rows.step();)
        events.push_back({rows.integer(0),
                          {rows.integer(1) != 0, rows.text(2), rows.text(3)},
                          rows.text(4),
                          rows.text(5),
                          rows.text(6),
                          rows.text(7),
                          size_in(rows, 8),
                          size_in(rows, 9)});
    return events;
}

} // namespace kvmserver::store
