// The search of a request's function among many routes (the argument: how many functions).
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "src/daemon/routing.hpp"

namespace {

using kvmserver::daemon::Destination;
using kvmserver::daemon::RoutingTable;

std::string host_of(std::int64_t number) { return fmt::format("function-{:07}.localhost", number); }

// Each has a host of its own; as many more have a path of one host, and there are a few wildcards.
std::unique_ptr<RoutingTable> table_of(std::int64_t functions) {
    std::vector<RoutingTable::Change> changes;
    for (std::int64_t i = 0; i < functions; ++i) {
        auto made = std::make_shared<Destination>();
        made->routes = {{host_of(i), "/"}, {"shared.example", fmt::format("/api/{}", i)}};
        if (i % 1000 == 0)
            made->routes.push_back({fmt::format("*.wild-{}.example", i), "/"});
        changes.push_back({nullptr, std::move(made)});
    }
    auto table = std::make_unique<RoutingTable>();
    table->change(changes);
    return table;
}

void find(benchmark::State& state, const char* path, bool own_host, bool there) {
    const auto table = table_of(state.range(0));
    std::vector<std::string> hosts, paths;
    for (std::int64_t i = 0; i < 1024; ++i) {
        const std::int64_t number = i * 7919 % state.range(0);
        hosts.push_back(own_host ? (there ? host_of(number) : "a.b.c." + host_of(number)) : "shared.example");
        paths.push_back(own_host ? path : fmt::format("{}{}/x?y", path, there ? number : state.range(0) + number));
    }
    std::size_t at = 0;
    for (auto _ : state) {
        const auto found = table->find(hosts[at], paths[at]);
        if (!found == there)
            state.SkipWithError("the wrong function");
        at = (at + 1) % hosts.size();
    }
}

#define SIZES ->Arg(100)->Arg(10'000)->Arg(100'000)
BENCHMARK_CAPTURE(find, route_of_host, "/index.html?a=b", true, true) SIZES;
BENCHMARK_CAPTURE(find, route_of_path, "/api/", false, true) SIZES;
BENCHMARK_CAPTURE(find, route_missing_host, "/", true, false) SIZES;
BENCHMARK_CAPTURE(find, route_missing_path, "/api/", false, false) SIZES;

} // namespace
