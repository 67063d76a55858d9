// Finds the function that a request is for.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/common/listen_address.hpp"
#include "src/store/functions/functions.hpp"

namespace kvmserver::daemon {

class FunctionVersion; // function_version.hpp

struct Share {
    std::shared_ptr<FunctionVersion> version;
    unsigned percent = 0;
    bool operator==(const Share&) const = default;
};

struct Destination {
    std::string function;
    std::int64_t created = 0; // of the function: ms since 1970
    // Add up to 100 percent, or less at an address where not all versions listen. Empty: nothing is live.
    std::vector<Share> shares;
    std::vector<store::Route> routes; // that lead here
    bool operator==(const Destination&) const = default;
};

// One of the destination's versions, at random by their shares. Null: none is live, or the one chosen cannot be served.
std::shared_ptr<FunctionVersion> version_by_share(const Destination& destination);
// The same for any number in place of chance: equal ones get the same version, as long as the shares stay.
std::shared_ptr<FunctionVersion> version_by_share(const Destination& destination, std::uint64_t number);

// What is served at each address of TCP functions.
using TcpTable = std::map<ListenAddress, std::shared_ptr<const Destination>>;

// The most specific route wins: an exact host before "*.x" (longer ones first) before any host; for equal hosts the
// longest path. Thread-safe. A search takes a few comparisons per part of the host, however many routes there are, and
// a change costs as much as the routes that it changes.
class RoutingTable {
public:
    struct Change {
        std::shared_ptr<const Destination> before, after; // of one function; null: it is not there
    };
    // Makes all changes at once: no search sees some of them only.
    void change(std::span<const Change> changes);
    // Null if no route matches. `host` is in lower case and has no port. `route` is set to that which does: it is one
    // of the destination's.
    std::shared_ptr<const Destination> find(std::string_view host, std::string_view path,
                                            const store::Route** route = nullptr) const;

private:
    // The routes of one host. Of very many hosts most have one, which takes no memory of its own.
    class Paths {
    public:
        struct Entry {
            std::string_view path; // it is in the destination
            std::shared_ptr<const Destination> to;
        };
        bool empty() const { return !one_.to && !many_; }
        const Entry* find(std::string_view path) const;
        const Entry* longest_match(std::string_view path) const;
        void put(Entry entry);
        void erase(std::string_view path);

    private:
        struct ByPath {
            using is_transparent = void;
            static std::string_view path(const Entry& entry) { return entry.path; }
            static std::string_view path(std::string_view text) { return text; }
            bool operator()(const auto& a, const auto& b) const { return path(a) < path(b); }
        };
        Entry one_;
        std::unique_ptr<std::set<Entry, ByPath>> many_; // in place of `one_`; never empty
    };
    using Hosts = std::map<std::string, Paths, std::less<>>;
    Hosts& hosts_for(const std::string& pattern) { return pattern.starts_with("*.") ? wild_ : exact_; }
    void remove(const std::shared_ptr<const Destination>& destination);
    void add(const std::shared_ptr<const Destination>& destination);

    mutable std::shared_mutex mutex_; // guards the following
    Hosts exact_, wild_;              // "": any host; "*.x" is in wild_, as ".x"
};

} // namespace kvmserver::daemon
