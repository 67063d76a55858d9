// The JSON of etcd's gateway: bytes as base64, 64-bit numbers as strings, and what is 0, false or empty left out.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

#include "src/etcd/client.hpp"

namespace kvmserver::etcd {

using Json = nlohmann::json;

// A reply is not as etcd writes it. what() continues "HOST answers what is not etcd's: ".
class BadReply : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

// An object of bounded size and depth: a reply of N bytes takes a small multiple of N, and 256 MiB at most for its
// structure. Throws BadReply.
Json parse_reply(std::string_view text);

// All throw BadReply. A missing field is 0, false, "" or an empty list.
std::int64_t number_in(const Json& object, const char* name);
bool flag_in(const Json& object, const char* name);
std::string text_in(const Json& object, const char* name);
std::string bytes_in(const Json& object, const char* name); // written as base64
const Json& list_in(const Json& object, const char* name);
const Json& object_in(const Json& object, const char* name); // missing: an empty object
std::int64_t revision_in(const Json& reply);                 // of its header: 1 or more

// An entry that is below `prefix`.
Entry entry_in(const Json& kv, const std::string& prefix);

// The first key after all keys that begin with `prefix`, as etcd's range_end wants it.
std::string end_of_prefix(std::string prefix);

// --- errors

// The text of an error for a message: one short line of printable ASCII.
std::string brief(std::string_view text);

struct ErrorReply {
    std::string text; // brief
    int code = 0;     // of gRPC; 0: none
    // What may pass: no leader, no answer of the others in time.
    bool is_away() const;
    // It was refused before it could take effect, though it is_away().
    bool is_not_done() const;
    // A new token may help.
    bool wants_login() const;
    bool is_about_permission() const;
};
// Of a reply whose status is not 200, which may be from a proxy, or of the "error" of a stream.
ErrorReply error_in(std::string_view reply, long status);

} // namespace kvmserver::etcd
