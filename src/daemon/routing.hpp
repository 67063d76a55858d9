// Which function a request is for.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/store/functions/functions.hpp"

namespace kvmserver::daemon {

class FunctionVersion; // a version of a function: worker_pool.hpp

struct Share {
    std::shared_ptr<FunctionVersion> version;
    unsigned percent = 0;
};

struct Destination {
    std::string function;
    std::vector<Share> shares; // 100 percent in all; empty: nothing of it is live
};

// Immutable once made. The most particular route wins: an exact host before "*.x" (the longer one first)
// before any host, and among these the longest path.
class RoutingTable {
public:
    void add(const store::Route& route, std::shared_ptr<const Destination> destination);
    void sort();
    // Null when there is none.
    const Destination* find(std::string_view host, std::string_view path) const;
    std::size_t functions = 0;

private:
    struct Entry {
        store::Route route;
        std::shared_ptr<const Destination> destination;
    };
    std::vector<Entry> entries_;
};

} // namespace kvmserver::daemon
