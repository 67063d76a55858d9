// Which function a request's host and path lead to.
#include "src/daemon/routing.hpp"

#include <array>
#include <initializer_list>
#include <memory>
#include <string>

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
