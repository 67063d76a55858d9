// A request to the API and the way its reply goes, whatever carries them.
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
    std::optional<uid_t> peer; // of a Unix socket's other end, as the kernel says it
    bool in_process = false;   // asked by this process itself, which may do everything

    std::string_view header(std::string_view name) const; // the first of that name in any case, or ""
};

// Sets segments and query. Throws BadValue for a target that is not "/PATH[?QUERY]" with a right encoding.
void set_target(Request& request, std::string_view target);
std::string percent_encoded(std::string_view text); // fit for a segment or a query's value

// The client has hung up, or makes no progress. Nothing can be told to it any more.
class ClientGone : public std::exception {
public:
    const char* what() const noexcept override { return "the client has gone"; }
};

// To be used by one thread. Throws ClientGone.
class Exchange {
public:
    virtual ~Exchange() = default;
    // Of the request's body; 0 at its end.
    virtual std::size_t read(std::span<std::byte> into) = 0;
    // Once, before any write(). Without a length the body ends with the exchange.
    virtual void begin(unsigned status, const Headers& headers, std::optional<std::uint64_t> length) = 0;
    virtual void write(std::span<const std::byte> bytes) = 0;
    // Waits that long at most for the client to hang up; true when it has.
    virtual bool gone_within(int milliseconds) = 0;
    virtual bool begun() const = 0;
};

} // namespace kvmserver::admin
