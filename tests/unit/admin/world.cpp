#include "tests/unit/admin/world.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>

namespace kvmserver::admin::test {

std::size_t Client::read(std::span<std::byte> into) {
    const std::size_t count = std::min(into.size(), body_.size() - at_);
    std::memcpy(into.data(), body_.data() + at_, count);
    at_ += count;
    return count;
}

void Client::begin(unsigned status, const Headers& headers, std::optional<std::uint64_t>) {
    reply_.status = status;
    reply_.headers = headers;
}

std::string Reply::header(const std::string& name) const {
    const auto at = std::ranges::find(headers, name, &Headers::value_type::first);
    return at == headers.end() ? "" : at->second;
}

void Client::write(std::span<const std::byte> bytes) {
    reply_.body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

void QuietDaemon::refresh() {
    measurements_.keep([this] {
        std::vector<daemon::FunctionIdentity> all;
        for (const store::FunctionSummary& function : store::Functions(store_).list())
            all.emplace_back(function.name, function.created);
        return all;
    });
}

World::World(ApiOptions options)
    : api(source, [&] {
          options.control = &daemon;
          return std::move(options);
      }()) {}

Reply World::ask(const std::string& method, const std::string& target, const std::string& body, const Headers& headers,
                 const std::string& token) {
    Client client(body);
    ask(method, target, client, headers, token);
    return client.reply();
}

void World::ask(const std::string& method, const std::string& target, Client& client, const Headers& headers,
                const std::string& token) {
    Request request;
    request.method = method;
    request.headers = headers;
    request.id = "0123456789abcdef";
    if (token.empty())
        request.peer = ::geteuid();
    else
        request.headers.emplace_back("Authorization", "Bearer " + token);
    api.serve(request, target, client);
}

} // namespace kvmserver::admin::test
