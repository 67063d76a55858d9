// The newest requests of each function, in memory only: what `kvmserver logs` shows between the lines.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/request/outcome.hpp"

namespace kvmserver::daemon {

// What is known about a request when it is over. Views are copied.
struct FinishedRequest {
    std::int64_t ms = 0; // when it ended, since 1970
    std::uint64_t version = 0;
    unsigned status = 0; // 0: the client got none
    request::Outcome outcome = request::Outcome::ok;
    std::uint64_t total_us = 0;
    std::string_view method = {}, path = {}, request_id = {}; // `path` without the query
};

struct LoggedRequest {
    std::uint64_t id = 0; // as LogLine::id, so that requests and lines can be merged
    std::int64_t ms = 0;
    std::string function;
    std::uint64_t version = 0;
    unsigned status = 0;
    request::Outcome outcome = request::Outcome::ok;
    std::uint64_t total_us = 0;
    std::string method, path, request_id;
    std::string text() const; // for people: "GET /path 502 program_failed"; the outcome only if it is not ok
    std::string json() const; // one object, without a newline
};

struct RequestQuery {
    std::string function;     // "": all functions
    std::int64_t created = 0; // of `function`: an earlier one of that name is another
    std::int64_t since_ms = 0;
    std::optional<std::uint64_t> version = {};
    std::string request_id = {}; // "": all
    std::string contains = {};   // in its text or request id; "": all
    bool errors = false;         // only failed ones
};

// Status 500 or more, or an outcome that the client did not cause.
bool failed(unsigned status, request::Outcome outcome);

// The requests of one function. Failed ones have places of their own, so that a flood of others does not displace them.
// Thread-safe. Places are reused with the memory of their text: adding costs a short lock and no allocation.
class RequestRing {
public:
    static constexpr std::size_t kKept = 1000;    // of each kind
    static constexpr std::size_t kMaxPath = 256;  // longer paths are cut
    static constexpr std::size_t kMaxMethod = 16; // and methods

    RequestRing();
    void add(const FinishedRequest& request);

    // How far a reader is.
    struct Position {
        std::uint64_t ring = 0; // serial number of the ring; 0: nothing has been read
        std::array<std::uint64_t, 2> read{};
    };
    // Appends matching requests after `position`, oldest first, and moves it to the end. Returns how many were
    // displaced since then, matching or not.
    std::uint64_t read(const RequestQuery& query, Position& position, std::vector<LoggedRequest>& found) const;

private:
    struct Place {
        std::uint64_t id = 0;
        std::int64_t ms = 0;
        std::uint64_t version = 0, total_us = 0;
        unsigned status = 0;
        request::Outcome outcome = request::Outcome::ok;
        std::uint8_t method_bytes = 0, request_id_bytes = 0;
        std::string text; // method, request id, path
    };
    struct Kind {
        std::vector<Place> places; // the request with number N is at N % kKept
        std::uint64_t count = 0;   // of all requests ever
    };
    static LoggedRequest logged(const Place& place);

    const std::uint64_t serial_;
    mutable std::mutex mutex_;
    std::uint64_t last_id_ = 0;
    std::array<Kind, 2> kinds_; // [0]: not failed, [1]: failed
};

// Finds the rings. The hot path does not come here: a version of a function holds its ring.
class RequestLog {
public:
    using Identity = std::pair<std::string, std::int64_t>; // name and creation time of a function
    // Lives as long as somebody holds it: as long as the function has a version.
    std::shared_ptr<RequestRing> ring(const std::string& function, std::int64_t created);
    std::shared_ptr<RequestRing> find(const std::string& function, std::int64_t created) const; // null: there is none
    std::map<Identity, std::shared_ptr<const RequestRing>> rings(const RequestQuery& query) const;

private:
    mutable std::mutex mutex_;
    std::map<Identity, std::weak_ptr<RequestRing>> rings_;
    std::size_t sweep_at_ = 16; // so many, and those that nobody holds are removed
};

// Reads what is there, and then what has come since.
class RequestReader {
public:
    RequestReader(const RequestLog& log, RequestQuery query) : log_(log), query_(std::move(query)) {}
    // By id. Adds to `missed` how many requests came and were displaced since the last call.
    std::vector<LoggedRequest> next(std::uint64_t& missed);

private:
    const RequestLog& log_;
    const RequestQuery query_;
    std::map<RequestLog::Identity, RequestRing::Position> positions_;
};

} // namespace kvmserver::daemon
