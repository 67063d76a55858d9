#include "src/cli/platform/connection.hpp"

#include <fmt/format.h>
#include <strings.h>

#include "src/admin/address.hpp"
#include "src/admin/request.hpp"
#include "src/cli/platform/local_connection.hpp"
#include "src/cli/platform/platform.hpp"
#include "src/cli/platform/remote_connection.hpp"

namespace kvmserver::cli::platform {

std::string encoded(std::string_view text) { return admin::percent_encoded(text); }

std::string target_of(std::initializer_list<std::string_view> segments) {
    std::string target = "/v1";
    for (const std::string_view segment : segments)
        target += '/' + encoded(segment);
    return target;
}

std::string_view Connection::Raw::header(std::string_view name) const {
    for (const auto& [key, value] : headers)
        if (key.size() == name.size() && ::strncasecmp(key.data(), name.data(), name.size()) == 0)
            return value;
    return {};
}

const Listening& Connection::listening() {
    if (!listening_) {
        listening_.emplace();
        try {
            const nlohmann::json info = call("GET", "/v1/info");
            if (const auto daemon = info.find("daemon"); daemon != info.end())
                listening_ = {.address = daemon->value("address", ""),
                              .port = daemon->value("port", std::uint64_t{0}),
                              .tls = daemon->value("tls", false)};
        } catch (const tinykvm::UserError&) { // the URL is only for people
        }
    }
    return *listening_;
}

PublicUrl Connection::public_url(const std::string& route) {
    return platform::public_url(route, listening(), server());
}

std::unique_ptr<Connection> connect(const Invocation& invocation, Context& context) {
    const bool quiet = flag(invocation, "quiet");
    if (auto server = chosen_server(invocation))
        return connect_there(std::move(*server), {}, quiet, context);
    const std::filesystem::path store = store_path(invocation, context);
    const auto socket = admin::default_socket(store);
    if (admin::connect_unix(socket)) {
        remote::Server server;
        server.socket = socket;
        if (const auto seconds = timeout(invocation))
            server.timeout_seconds = *seconds;
        return connect_there(std::move(server), store, quiet, context);
    }
    return connect_here(invocation, context);
}

} // namespace kvmserver::cli::platform
