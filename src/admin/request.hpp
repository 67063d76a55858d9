// A request to the API and its reply, independent of the transport.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace kvmserver::admin {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
    std::string method;
    std::vector<std::string> segments; // of the path, decoded: "/v1/functions/a%20b" is {"v1", "functions", "a b"}
    std::map<std::string, std::string> query;
    Headers headers;
    std::string id;
    std::optional<uid_t> peer; // the client's uid, from the kernel (Unix socket only)
    bool in_process = false;   // made by this process itself, which may do everything

    std::string_view header(std::string_view name) const; // the first of that name, ignoring case, or ""
};

// Sets segments and query. Throws BadValue unless the target is "/PATH[?QUERY]" with valid percent-encoding.
void set_target(Request& request, std::string_view target);
std::string percent_encoded(std::string_view text); // for a path segment or a query's value

// The client has disconnected or makes no progress. No reply can reach it.
class ClientGone : public std::exception {
public:
    const char* what() const noexcept override { return "the client has gone"; }
};

// The body of a request and its reply. Belongs to one thread. Throws ClientGone.
class Exchange {
public:
    virtual ~Exchange() = default;
    // Reads from the request's body; returns 0 at its end.
    virtual std::size_t read(std::span<std::byte> into) = 0;
    // Call once, before write(). Without a length the body ends with the exchange.
    virtual void begin(unsigned status, const Headers& headers, std::optional<std::uint64_t> length) = 0;
    virtual void write(std::span<const std::byte> bytes) = 0;
    // Waits up to that long for the client to disconnect; true if it has.
    virtual bool gone_within(int milliseconds) = 0;
    virtual bool begun() const = 0;
};

} // namespace kvmserver::admin
