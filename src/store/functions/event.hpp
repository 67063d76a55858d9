// The history of a function: who changed it, when, how and why. It is deleted with its function.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/store/index/database.hpp"

namespace kvmserver::store {

constexpr std::size_t kMaxMessage = 500; // bytes
constexpr std::size_t kMaxEvents = 200;  // of each function; older ones are deleted

// Who makes changes: the holder of a token, or a user of this host.
struct Author {
    bool token = false;
    std::string name;   // of the token or the user; "": not known
    std::string tenant; // prefix of the token
    bool operator==(const Author&) const = default;
};

enum class Action {
    deploy,
    rollback,
    traffic,
    set_routes,
    set_state,
    set_env,
    unset_env,
    set_secret,
    unset_secret,
    delete_version,
    migrate,
    take_over,
    gc,
};
const char* name_of(Action action); // "deploy", "set-env"

struct Event {
    std::int64_t time = 0; // ms since 1970; set when it is recorded
    Author author;
    std::string action;  // name_of(Action); other kvmservers may write more
    std::string subject; // what was acted on: "v4", "v4 -> v3", "COLOUR"
    std::string change;  // of a deploy: how the version differs from the one before (deploy_change.hpp)
    std::string message; // why, in the author's words; "": none given
    // Of a deploy: size of the snapshot that the version has now, and of its chunks that no earlier version of this
    // function has.
    std::optional<std::uint64_t> bytes = {}, new_bytes = {};
    bool operator==(const Event&) const = default;
};

// One line of UTF-8 without control characters, up to kMaxMessage bytes. Throws BadValue.
void check_message(std::string_view message);

// Records the event now, and deletes the oldest ones beyond kMaxEvents. Call it within a transaction. Throws BadValue
// for the message.
void insert_event(Database& database, std::int64_t function, Event event);
// As it is, with the time that it has.
void insert_event_row(Database& database, std::int64_t function, const Event& event);
std::vector<Event> load_events(const Database& database, std::int64_t function); // newest first

} // namespace kvmserver::store
