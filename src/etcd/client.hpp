// A client of etcd v3, by its HTTP gateway (JSON over /v3/). It knows keys and values, not what they mean.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/etcd/address.hpp"
#include "src/etcd/credentials.hpp"
#include "src/etcd/errors.hpp"
#include "src/etcd/limits.hpp"

namespace kvmserver::etcd {

// All keys here are without the address's prefix. Keys and values are any bytes; a key is not empty.
struct Entry {
    std::string key;
    std::string value;                     // "" if it was asked for Values::without
    std::int64_t created = 0, changed = 0; // revisions: etcd's create_revision and mod_revision
};

struct Found {
    std::int64_t revision = 0;  // of the store, when it answered
    std::vector<Entry> entries; // by key, ascending
    bool more = false;          // there are entries beyond the limit
};

enum class Values { with, without };

// Holds if what `of` names is equal. A missing key has created == 0 and changed == 0, and no value.
struct Condition {
    enum class Of { created, changed, value } of = Of::created;
    std::string key;
    std::int64_t revision = 0; // of created and changed
    std::string value{};       // of value
};

struct Change {
    std::string key;
    std::optional<std::string> value; // nullopt: deletes the key, if there is one
    std::int64_t lease = 0;           // the key is deleted when this lease ends; 0: none
};

struct Done {
    bool applied = false;      // false: a condition does not hold, and nothing changed
    std::int64_t revision = 0; // of the store after it: `changed` of what it wrote
};

class Session;

// Any number of threads may use it; each call blocks its own, and connections are kept for the next.
// All throw Away and Refused. A request is tried at each endpoint in turn, beginning with the one that answered last,
// until one answers; what changes the store is sent again only if it was certainly not sent, or not accepted, before.
class Client {
public:
    Client(Address address, Credentials credentials, const Limits& limits = {});
    ~Client();
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    // Linearizable: what any client was told to be written before is seen. nullopt: there is no such key.
    std::optional<Entry> get(const std::string& key);
    // Entries whose keys begin with `prefix` ("": all) and come after the key `after` ("": from the first on), at most
    // `limit`. Linearizable. Pages are not of one revision: what changed since the first one's is told by a Watch from
    // its revision + 1 on.
    Found range(const std::string& prefix, const std::string& after, std::int64_t limit, Values values);
    // One transaction: if all conditions hold, all changes are made, else none. etcd refuses more than 128 of either, a
    // key that is changed twice, and more than 1.5 MB in all, unless it is configured otherwise.
    Done change(std::span<const Condition> conditions, std::span<const Change> changes);

    // A lease ends by itself when it has not been kept for so many seconds. Returns its ID.
    std::int64_t grant_lease(std::int64_t seconds);
    bool keep_lease(std::int64_t lease);   // false: it has ended
    void revoke_lease(std::int64_t lease); // whether or not it has ended

    const Address& address() const;
    Session& session() { return *session_; } // for Watch

private:
    std::unique_ptr<Session> session_;
};

} // namespace kvmserver::etcd
