#include "src/daemon/tcp_sockets.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "src/store/errors.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::daemon {

using tinykvm::ExitCode;
using tinykvm::UniqueFd;
using tinykvm::UserError;

namespace {

constexpr int kBacklog = 1024;
constexpr std::chrono::seconds kTryEvery{1};
// From the checks of a deploy to its table, and from the start of a daemon to its first table.
constexpr std::chrono::seconds kClaimLasts{10};

} // namespace

UniqueFd listen_at(const ListenAddress& address) {
    sockaddr_storage where;
    const socklen_t bytes = address.to(where);
    UniqueFd fd(::socket(where.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    if (fd)
        ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd && where.ss_family == AF_INET6)
        ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (fd && ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&where), bytes) == 0 &&
        ::listen(fd.get(), kBacklog) == 0)
        return fd;
    const int error = errno;
    const std::string text = fmt::format("cannot listen on {}: {}", address.text(), std::strerror(error));
    if (error == EADDRINUSE)
        throw store::Conflict(text + "; choose another address, or stop what listens there");
    throw UserError(error == EACCES          ? ExitCode::not_permitted
                    : error == EADDRNOTAVAIL ? ExitCode::usage
                                             : ExitCode::failure,
                    text);
}

TcpSockets::TcpSockets(std::vector<UniqueFd> inherited, std::function<void(const std::string&)> note)
    : note_(std::move(note)) {
    for (UniqueFd& socket : inherited) {
        const ListenAddress address = ListenAddress::of_socket(socket.get());
        claimed_[address] = {"", std::move(socket), Clock::now() + kClaimLasts};
    }
}

// Of what was claimed, or a new one.
UniqueFd TcpSockets::take(const ListenAddress& address, const std::string& function) {
    const auto found = claimed_.find(address);
    if (found != claimed_.end() && (found->second.function.empty() || found->second.function == function)) {
        UniqueFd socket = std::move(found->second.socket);
        claimed_.erase(found);
        return socket;
    }
    return listen_at(address);
}

void TcpSockets::claim(const std::string& function, const std::vector<ListenAddress>& addresses, bool keep) {
    const std::lock_guard lock(mutex_);
    std::map<ListenAddress, Claimed> fresh;
    for (const ListenAddress& address : addresses) {
        if (const auto mine = open_.find(address);
            mine != open_.end() && mine->second.destination->function == function)
            continue;
        bool replaces = false; // one of its own that the new version does not name
        for (const auto& [other, open] : open_)
            if (other.overlaps(address)) {
                if (open.destination->function != function)
                    throw store::Conflict(fmt::format("{} is taken by another function", address.text()));
                replaces = true;
            }
        const auto claimed = claimed_.find(address);
        if (!replaces && (claimed == claimed_.end() || claimed->second.function != function))
            fresh[address] = {function, take(address, function), Clock::now() + kClaimLasts};
    }
    if (keep)
        claimed_.merge(fresh);
}

bool TcpSockets::want(const std::function<TcpTable()>& table) {
    const std::lock_guard lock(mutex_);
    if (closed_)
        return false;
    wanted_ = table();
    std::erase_if(open_, [&](const auto& open) { return !wanted_.contains(open.first); });
    std::erase_if(faults_, [&](const auto& fault) { return !wanted_.contains(fault.first); });
    for (auto& [address, open] : open_)
        open.destination = wanted_.at(address);
    open_missing();
    return true;
}

bool TcpSockets::retry() {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    if (closed_ || now < next_try_)
        return false;
    std::erase_if(claimed_, [&](const auto& claimed) { return claimed.second.until < now; });
    return open_missing();
}

bool TcpSockets::open_missing() {
    bool news = false;
    next_try_ = Clock::now() + kTryEvery;
    for (const auto& [address, destination] : wanted_) {
        if (open_.contains(address))
            continue;
        try {
            open_[address] = {std::make_shared<const UniqueFd>(take(address, destination->function)), destination};
            faults_.erase(address);
            news = true;
        } catch (const std::exception& error) {
            open_.erase(address);
            const std::string line = fmt::format("{}: {}", destination->function, error.what());
            if (std::string& said = faults_[address]; said != line)
                note_(said = line);
        }
    }
    return news;
}

std::map<ListenAddress, TcpSockets::Open> TcpSockets::open() const {
    const std::lock_guard lock(mutex_);
    return open_;
}

void TcpSockets::close_all() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    open_.clear();
    claimed_.clear();
}

} // namespace kvmserver::daemon
