// The real API on a store of its own behind a small HTTP server that can be told to do it harm.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "tests/unit/admin/world.hpp"
#include "tests/unit/remote/server.hpp"

namespace kvmserver::remote::test {

class FarApi {
public:
    // True: the request is dealt with.
    using Harm = std::function<bool(FarApi&, Turn&)>;
    explicit FarApi(Harm harm = [](FarApi&, Turn&) { return false; });

    // What the API says to what of the body was taken: without all of it, as when a connection breaks there.
    admin::test::Reply say(Turn& turn);
    void pass_on(Turn& turn); // the request to the API, and back what it says

    admin::test::World world;
    Harm harm;
    Server server; // last: it uses the rest
};

} // namespace kvmserver::remote::test
