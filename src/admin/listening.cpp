#include "src/admin/listening.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "src/daemon/control.hpp"
#include "src/daemon/function_settings.hpp"
#include "src/store/errors.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::admin {

namespace {

// Nothing if it is no TCP function, or cannot be served.
std::optional<daemon::TcpSettings> tcp_of(store::Functions& functions, const std::string& function,
                                          std::uint64_t version) {
    try {
        return daemon::function_settings(functions.version(function, version).manifest).tcp;
    } catch (const store::NotFound&) {
        return std::nullopt; // removed meanwhile
    } catch (const tinykvm::UserError& error) {
        if (error.code() != tinykvm::ExitCode::usage)
            throw;
        return std::nullopt;
    }
}

std::string text_of(const std::optional<daemon::TcpSettings>& tcp) {
    if (!tcp)
        return "HTTP";
    if (tcp->by_name)
        return "TLS that is passed through";
    std::string text;
    for (const ListenAddress& address : tcp->listen)
        text += (text.empty() ? "" : ", ") + address.text();
    return text;
}

} // namespace

void require_listening(Call& call, const std::string& function, const daemon::TcpSettings& tcp, Claim claim) {
    const std::vector<ListenAddress>& addresses = tcp.listen;
    if (const daemon::Control* control = call.api.options().control; control && tcp.by_name && !control->info().tls)
        throw store::Conflict(
            fmt::format("{} has protocol = \"tls-passthrough\", and this daemon serves without TLS: start "
                        "it with kvmserver serve --tls",
                        function));
    if (addresses.empty())
        return;
    if (store::Store* store = call.api.source().get()) {
        store::Functions functions(*store);
        for (const store::FunctionSummary& other : functions.list()) {
            if (other.name == function)
                continue;
            for (const store::Live& live : other.live)
                if (const auto theirs = tcp_of(functions, other.name, live.version))
                    for (const ListenAddress& address : addresses)
                        if (std::ranges::any_of(theirs->listen, [&](const auto& its) { return its.overlaps(address); }))
                            throw store::Conflict(fmt::format(
                                "{} is taken by {}; choose another address", address.text(),
                                // A tenant must not learn what others there are.
                                call.who.allows(store::kScopeRead, other.name) ? other.name : "another function"));
        }
    }
    if (daemon::Control* control = call.api.options().control)
        control->claim(function, addresses, claim == Claim::keeps);
}

void require_listening(Call& call, const std::string& function, const std::vector<store::Live>& live, Claim claim) {
    store::Functions functions(call.store());
    std::optional<daemon::TcpSettings> first;
    for (std::size_t i = 0; i < live.size(); ++i) {
        const auto tcp = tcp_of(functions, function, live[i].version);
        if (i == 0)
            first = tcp;
        else if (tcp.has_value() != first.has_value() ||
                 (tcp && (tcp->listen != first->listen || tcp->by_name != first->by_name)))
            throw store::Conflict(
                fmt::format("{0} v{1} is for {2}, v{3} for {4}: versions that share the traffic must be "
                            "for the same addresses",
                            function, live[0].version, text_of(first), live[i].version, text_of(tcp)));
    }
    if (first)
        require_listening(call, function, *first, claim);
}

} // namespace kvmserver::admin
