#include "tinykvm/linux/name_addresses.hpp"

#include <netdb.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <utility>

namespace tinykvm {

namespace {

constexpr std::uint64_t kSecondNs = 1'000'000'000;
constexpr std::uint64_t kFreshNs = 10 * kSecondNs;
constexpr std::uint64_t kSoonestNs = kSecondNs;
// A name service that does not answer delays whoever asks by ten seconds and more.
constexpr std::uint64_t kUnansweredNs = 60 * kSecondNs;

std::uint64_t coarse_now_ns() {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return static_cast<std::uint64_t>(now.tv_sec) * kSecondNs + static_cast<std::uint64_t>(now.tv_nsec);
}

} // namespace

std::optional<std::vector<NetAddress>> ask_name_service(const std::string& host) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* list = nullptr;
    const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
    std::vector<NetAddress> result;
    if (error == EAI_NONAME || error == EAI_NODATA)
        return result;
    if (error != 0)
        return std::nullopt;
    for (const addrinfo* item = list; item; item = item->ai_next)
        if (const auto address = net_address(item->ai_addr, item->ai_addrlen))
            result.push_back(*address);
    ::freeaddrinfo(list);
    return result;
}

NameAddresses::NameAddresses(std::string host) : NameAddresses(std::move(host), ask_name_service, coarse_now_ns) {}
NameAddresses::NameAddresses(std::string host, LookUp look_up, Now now)
    : host_(std::move(host)), look_up_(std::move(look_up)), now_(std::move(now)) {}

bool NameAddresses::knows(const NetAddress& address) const {
    return std::ranges::any_of(addresses_, [&](const NetAddress& each) { return each.bytes == address.bytes; });
}

// Under `asking_`.
void NameAddresses::ask() const {
    auto answer = look_up_(host_);
    const std::uint64_t now = now_();
    const std::lock_guard lock(mutex_);
    if (answer)
        addresses_ = std::move(*answer);
    fresh_until_ns_ = now + (answer ? kFreshNs : kUnansweredNs);
    not_before_ns_ = now + (answer ? kSoonestNs : kFreshNs);
}

bool NameAddresses::has(const NetAddress& address) const {
    std::unique_lock asking(asking_, std::defer_lock);
    {
        const std::lock_guard lock(mutex_);
        const bool known = knows(address);
        if (now_() < (known ? fresh_until_ns_ : not_before_ns_))
            return known;
        if (known && !asking.try_lock()) // another thread asks: the last answer serves meanwhile
            return true;
    }
    if (!asking.owns_lock()) {
        asking.lock();
        const std::lock_guard lock(mutex_);
        if (now_() < not_before_ns_) // by whoever asked meanwhile
            return knows(address);
    }
    ask();
    const std::lock_guard lock(mutex_);
    return knows(address);
}

bool NameAddresses::has_any() const {
    (void)has(NetAddress{});
    const std::lock_guard lock(mutex_);
    return !addresses_.empty();
}

} // namespace tinykvm
