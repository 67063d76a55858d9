// Which of several machines that keep their state a request goes to ([function.scale] machines, [function.sticky]).
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/daemon/function_version.hpp"
#include "src/daemon/routing.hpp"
#include "src/http/fields.hpp"

namespace kvmserver::daemon {

struct Choice {
    std::shared_ptr<FunctionVersion> machine; // null: nothing is live, or it cannot be served
    std::string set_cookie;                   // header line for the reply, with its CRLF; "": none
};

struct Asked {
    const std::vector<http::Field>& fields; // of the request
    std::string_view path;                  // of the route: what a cookie is meant for
    bool secure = false;                    // over TLS
};

// By header: equal values reach the same version, as far as its share allows, and the same machine of it, and of the
// next version that has as many. Requests without the header reach the first. By cookie: a request that brings none, or
// none of a machine that is live, begins a session on the next machine in turn of a version by its share. A client may
// name any machine in its cookie: it is no secret and gives no right.
Choice choose(const Destination& destination, const Asked& asked);
// The same for one version.
Choice choose_machine(const std::shared_ptr<FunctionVersion>& version, const Asked& asked);

// The machine, from 1 on, in the cookies of that name; 0: none says one of the version's.
unsigned machine_of_cookie(const std::vector<http::Field>& fields, std::string_view name,
                           const FunctionVersion::Facts& version);

} // namespace kvmserver::daemon
