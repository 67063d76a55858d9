// Which function a request's host and path lead to.
#include "src/daemon/routing.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <initializer_list>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "tests/catch.hpp"

using kvmserver::daemon::Destination;
using kvmserver::daemon::RoutingTable;
using kvmserver::store::Route;

namespace {

class Table {
public:
    // A function for each route, with the route as its name.
    Table(std::initializer_list<const char*> routes) {
        for (const char* route : routes) {
            auto destination = std::make_shared<Destination>();
            destination->function = route;
            destination->routes = {Route::parse(route)};
            table_.change(std::array{RoutingTable::Change{nullptr, std::move(destination)}});
        }
    }
    std::string find(std::string_view host, std::string_view path) const {
        const auto found = table_.find(host, path);
        return found ? found->function : "";
    }

private:
    RoutingTable table_;
};

} // namespace

TEST_CASE("a host leads to its function, and no other host does") {
    const Table table{"a.example", "b.example"};
    CHECK(table.find("a.example", "/") == "a.example");
    CHECK(table.find("b.example", "/x/y?z") == "b.example");
    for (const char* other : {"c.example", "example", "x.a.example", "aa.example", "a.example.com", ""}) {
        CAPTURE(other);
        CHECK(table.find(other, "/").empty());
    }
}

TEST_CASE("*.x is for every host below x, but not for x") {
    const Table table{"*.x.example"};
    CHECK(table.find("a.x.example", "/") == "*.x.example");
    CHECK(table.find("a.b.x.example", "/") == "*.x.example");
    for (const char* other : {"x.example", ".x.example", "ax.example", "x.example.a"}) {
        CAPTURE(other);
        CHECK(table.find(other, "/").empty());
    }
}

TEST_CASE("a path is for itself and what is below it, not for what only begins alike") {
    const Table table{"/api"};
    for (const char* path : {"/api", "/api/", "/api/x", "/api?x=1", "/api/x?y"}) {
        CAPTURE(path);
        CHECK(table.find("any.host", path) == "/api");
    }
    for (const char* path : {"/", "/apix", "/api-2", "/ap", "/API", "/x/api"}) {
        CAPTURE(path);
        CHECK(table.find("any.host", path).empty());
    }
}

TEST_CASE("/a/* is for what is below /a/ alone") {
    const Table table{"/a/*"};
    CHECK(table.find("h", "/a/") == "/a/*");
    CHECK(table.find("h", "/a/b") == "/a/*");
    CHECK(table.find("h", "/a").empty());
    CHECK(table.find("h", "/a?b").empty());
}

TEST_CASE("an exact host goes before *.x, the longer of these before the shorter, any host is last") {
    const Table table{"/*", "*.example", "*.b.example", "a.b.example"};
    CHECK(table.find("a.b.example", "/") == "a.b.example");
    CHECK(table.find("c.b.example", "/") == "*.b.example");
    CHECK(table.find("c.example", "/") == "*.example");
    CHECK(table.find("elsewhere", "/") == "/*");
}

TEST_CASE("the host decides before the path does, however long that is") {
    const Table table{"/a/very/long/path", "*.example/a/very/long", "h.example/a"};
    CHECK(table.find("h.example", "/a/very/long/path") == "h.example/a");
    CHECK(table.find("g.example", "/a/very/long/path") == "*.example/a/very/long");
    CHECK(table.find("h.example", "/b").empty());
    // Where the more particular host has no such path the next one is asked.
    const Table fallback{"*.example", "h.example/a"};
    CHECK(fallback.find("h.example", "/b") == "*.example");
}

TEST_CASE("of one host the longest path wins, in whatever order the routes came") {
    for (const Table& table :
         {Table{"h.example", "h.example/a", "h.example/a/b/*"}, Table{"h.example/a/b/*", "h.example/a", "h.example"}}) {
        CHECK(table.find("h.example", "/a/b/c") == "h.example/a/b/*");
        CHECK(table.find("h.example", "/a/b") == "h.example/a");
        CHECK(table.find("h.example", "/ab") == "h.example");
    }
}

TEST_CASE("a host of the greatest length goes before one below a wildcard") {
    const std::string label(62, 'a');
    const std::string wild = "*." + label + "." + label + "." + label, host = "x." + label + "." + label + "." + label;
    const Table table{wild.c_str(), host.c_str()};
    CHECK(table.find(host, "/") == host);
    CHECK(table.find("y" + host.substr(1), "/") == wild);
}

namespace {

std::shared_ptr<const Destination> function(const std::string& name, std::initializer_list<const char*> routes) {
    auto made = std::make_shared<Destination>();
    made->function = name;
    for (const char* route : routes)
        made->routes.push_back(Route::parse(route));
    return made;
}

std::string found(const RoutingTable& table, std::string_view host, std::string_view path) {
    const auto destination = table.find(host, path);
    return destination ? destination->function : "";
}

} // namespace

TEST_CASE("a function's routes go when it does, and others of the same host stay") {
    RoutingTable table;
    const auto a = function("a", {"h.example/a", "*.w.example"}), b = function("b", {"h.example/b", "h.example/a/b"});
    table.change(std::array{RoutingTable::Change{nullptr, a}, RoutingTable::Change{nullptr, b}});
    CHECK(found(table, "h.example", "/a/x") == "a");
    CHECK(found(table, "h.example", "/a/b/x") == "b");
    table.change(std::array{RoutingTable::Change{a, nullptr}});
    CHECK(found(table, "h.example", "/a/x").empty());
    CHECK(found(table, "x.w.example", "/").empty());
    CHECK(found(table, "h.example", "/a/b/x") == "b");
    CHECK(found(table, "h.example", "/b") == "b");
}

TEST_CASE("a route that moves to another function leads there, and stays when the former one goes") {
    RoutingTable table;
    const auto a = function("a", {"h.example"}), b = function("b", {"h.example"});
    table.change(std::array{RoutingTable::Change{nullptr, a}});
    table.change(std::array{RoutingTable::Change{nullptr, b}}); // a could not be read meanwhile
    CHECK(found(table, "h.example", "/") == "b");
    table.change(std::array{RoutingTable::Change{a, nullptr}});
    CHECK(found(table, "h.example", "/") == "b");
    // Both at once, in whatever order.
    const auto c = function("c", {"h.example", "c.example"}), d = function("d", {"d.example"});
    table.change(std::array{RoutingTable::Change{nullptr, c}, RoutingTable::Change{b, d}});
    CHECK(found(table, "h.example", "/") == "c");
    CHECK(found(table, "d.example", "/") == "d");
}

TEST_CASE("whatever the routes are, the search finds what a look at each of them finds") {
    std::minstd_rand random(7);
    const auto one_of = [&](std::initializer_list<const char*> texts) {
        return std::string(texts.begin()[random() % texts.size()]);
    };
    const auto host = [&] { return one_of({"a", "b", "a.b", "b.b", "a.a.b", "a.b.b", "c.a.b"}); };
    const auto path = [&] {
        std::string text;
        for (unsigned parts = random() % 4; parts != 0; --parts)
            text += one_of({"/a", "/ab", "/b", "/", "/a?", "/a-"});
        return text.empty() ? "/" : text;
    };
    for (int round = 0; round < 200; ++round) {
        std::vector<Route> all;
        RoutingTable table;
        for (int i = 0; i < 12; ++i) {
            const std::string kind = one_of({"", "*.", "exact", "exact"});
            Route route{kind.empty() ? "" : kind == "*." ? "*." + host() : host(), path()};
            if (std::ranges::find(all, route) != all.end())
                continue;
            all.push_back(route);
            auto made = std::make_shared<Destination>();
            made->function = route.host + route.path;
            made->routes = {route};
            table.change(std::array{RoutingTable::Change{nullptr, std::move(made)}});
        }
        // The most specific first.
        const auto weight = [](const std::string& pattern) {
            return pattern.empty() ? 0 : pattern.starts_with("*.") ? pattern.size() : 1000 + pattern.size();
        };
        std::ranges::sort(all, std::greater(), [&](const Route& route) {
            return std::tuple(weight(route.host), route.path.size(), route.path);
        });
        for (int i = 0; i < 50; ++i) {
            const std::string to = host(), at = path();
            std::string expected;
            for (const Route& route : all) {
                const bool host_fits = route.host.empty() || route.host == to ||
                                       (route.host.starts_with("*.") && to.size() > route.host.size() - 1 &&
                                        to.ends_with(route.host.substr(1)));
                const bool path_fits =
                    at.starts_with(route.path) && (route.path.ends_with('/') || at.size() == route.path.size() ||
                                                   at[route.path.size()] == '/' || at[route.path.size()] == '?');
                if (host_fits && path_fits && expected.empty())
                    expected = route.host + route.path;
            }
            CAPTURE(to, at);
            CHECK(found(table, to, at) == expected);
        }
    }
}
