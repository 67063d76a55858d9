// TLS connections that this server does not decrypt: the program that they are for holds the key.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "src/http/connection_table.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::http {

struct PassedClient {
    tinykvm::UniqueFd socket; // nothing was read from it
    std::string host;         // that it asks for
    std::string ip;
    std::unique_ptr<ConnectionTable::Place> place; // may be null
};

// Called on the front's threads; must not block. Empty functions: there is no such program.
struct Passthrough {
    std::function<bool()> any; // whether there is any at all: otherwise no client's name is looked at
    std::function<bool(std::string_view host)> has; // whether it is for one of them
    std::function<void(PassedClient client)> take;
};

} // namespace kvmserver::http
