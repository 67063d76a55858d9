#include "src/etcd/client.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "src/etcd/base64.hpp"
#include "src/etcd/json.hpp"
#include "src/etcd/session.hpp"

namespace kvmserver::etcd {
namespace {

// Asks, and reads the reply by `read`, which throws BadReply.
template <class Read>
auto ask(Session& session, const char* path, const Json& body, Repeat repeat, const Read& read) {
    const Json reply = session.ask(path, body, repeat);
    try {
        return read(reply);
    } catch (const BadReply& bad) {
        const std::string what =
            fmt::format("{}: it answers what is not etcd's to {}: {}", session.address().text(), path, bad.what());
        if (repeat == Repeat::no)
            throw Away(what, true);
        throw Refused(tinykvm::ExitCode::failure, what);
    }
}

// etcd wants 64-bit numbers as texts.
std::string number(std::int64_t value) { return std::to_string(value); }

Json condition_json(const Condition& condition, const std::string& prefix) {
    Json json{{"result", "EQUAL"}, {"key", to_base64(prefix + condition.key)}};
    switch (condition.of) {
    case Condition::Of::created:
        json["target"] = "CREATE";
        json["create_revision"] = number(condition.revision);
        break;
    case Condition::Of::changed:
        json["target"] = "MOD";
        json["mod_revision"] = number(condition.revision);
        break;
    case Condition::Of::value:
        json["target"] = "VALUE";
        json["value"] = to_base64(condition.value);
        break;
    }
    return json;
}

Json change_json(const Change& change, const std::string& prefix) {
    const std::string key = to_base64(prefix + change.key);
    if (!change.value)
        return {{"request_delete_range", {{"key", key}}}};
    Json put{{"key", key}, {"value", to_base64(*change.value)}};
    if (change.lease != 0)
        put["lease"] = number(change.lease);
    return {{"request_put", std::move(put)}};
}

Found found_in(const Json& reply, const std::string& prefix) {
    Found found;
    found.revision = revision_in(reply);
    found.more = flag_in(reply, "more");
    const Json& list = list_in(reply, "kvs");
    found.entries.reserve(list.size());
    for (const Json& kv : list)
        found.entries.push_back(entry_in(kv, prefix));
    return found;
}

} // namespace

Client::Client(Address address, Credentials credentials, const Limits& limits)
    : session_(std::make_unique<Session>(std::move(address), std::move(credentials), limits)) {}
Client::~Client() = default;

const Address& Client::address() const { return session_->address(); }

std::optional<Entry> Client::get(const std::string& key) {
    const Json body{{"key", to_base64(address().prefix + key)}};
    return ask(*session_, "/v3/kv/range", body, Repeat::yes, [&](const Json& reply) -> std::optional<Entry> {
        Found found = found_in(reply, address().prefix);
        if (found.entries.empty())
            return std::nullopt;
        if (found.entries.size() > 1 || found.entries.front().key != key)
            throw BadReply("another key");
        return std::move(found.entries.front());
    });
}

Found Client::range(const std::string& prefix, const std::string& after, std::int64_t limit, Values values) {
    const std::string whole = address().prefix + prefix;
    // The first key after another is that key and a byte 0.
    std::string from = after.empty() ? whole : std::max(whole, address().prefix + after + '\0');
    const std::string end = end_of_prefix(whole);
    if (from >= end)
        from = end; // etcd finds nothing there
    Json body{{"key", to_base64(from)}, {"range_end", to_base64(end)}, {"limit", number(limit)}};
    if (values == Values::without)
        body["keys_only"] = true;
    return ask(*session_, "/v3/kv/range", body, Repeat::yes,
               [&](const Json& reply) { return found_in(reply, address().prefix); });
}

Done Client::change(std::span<const Condition> conditions, std::span<const Change> changes) {
    Json compare = Json::array(), success = Json::array();
    for (const Condition& condition : conditions)
        compare.push_back(condition_json(condition, address().prefix));
    for (const Change& change : changes)
        success.push_back(change_json(change, address().prefix));
    const Json body{{"compare", std::move(compare)}, {"success", std::move(success)}};
    return ask(*session_, "/v3/kv/txn", body, changes.empty() ? Repeat::yes : Repeat::no, [](const Json& reply) {
        return Done{flag_in(reply, "succeeded"), revision_in(reply)};
    });
}

std::int64_t Client::grant_lease(std::int64_t seconds) {
    return ask(*session_, "/v3/lease/grant", {{"TTL", number(seconds)}}, Repeat::no, [](const Json& reply) {
        const std::int64_t lease = number_in(reply, "ID");
        if (lease == 0)
            throw BadReply("no ID");
        return lease;
    });
}

bool Client::keep_lease(std::int64_t lease) {
    return ask(*session_, "/v3/lease/keepalive", {{"ID", number(lease)}}, Repeat::yes, [&](const Json& reply) {
        const Json& result = object_in(reply, "result");
        if (number_in(result, "ID") != lease)
            throw BadReply("another lease");
        return number_in(result, "TTL") > 0;
    });
}

void Client::revoke_lease(std::int64_t lease) {
    try {
        session_->ask("/v3/lease/revoke", {{"ID", number(lease)}}, Repeat::yes);
    } catch (const Refused& refused) {
        if (std::string(refused.what()).find("lease not found") == std::string::npos)
            throw;
    }
}

} // namespace kvmserver::etcd
