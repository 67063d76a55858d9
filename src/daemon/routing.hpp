// Finds the function that a request is for.
#pragma once
#include <map>
#include <memory>
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
};

struct Destination {
    std::string function;
    // Add up to 100 percent, or less at an address where not all versions listen. Empty: nothing is live.
    std::vector<Share> shares;
};

// One of the destination's versions, at random by their shares. Null: none is live, or the one chosen cannot be served.
std::shared_ptr<FunctionVersion> version_by_share(const Destination& destination);

// What is served at each address of TCP functions.
using TcpTable = std::map<ListenAddress, std::shared_ptr<const Destination>>;

// Immutable after sort(). The most specific route wins: an exact host before "*.x" (longer ones first) before any host;
// for equal hosts the longest path.
class RoutingTable {
public:
    void add(const store::Route& route, std::shared_ptr<const Destination> destination);
    void sort();
    // Null if no route matches. `route` is set to that which does.
    const Destination* find(std::string_view host, std::string_view path, const store::Route** route = nullptr) const;
    std::size_t functions = 0;
    TcpTable tcp;

private:
    struct Entry {
        store::Route route;
        std::shared_ptr<const Destination> destination;
    };
    std::vector<Entry> entries_;
};

} // namespace kvmserver::daemon
