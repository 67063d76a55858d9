// The addresses of a host name, looked up again as time passes.
#pragma once
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tinykvm/linux/net_address.hpp"

namespace tinykvm {

// Asks the host's name service, which may take seconds. Empty: the name has no address. Nothing: there was no answer.
std::optional<std::vector<NetAddress>> ask_name_service(const std::string& host);

// Thread-safe. The constructor does not look the name up.
class NameAddresses {
public:
    using LookUp = std::function<std::optional<std::vector<NetAddress>>(const std::string& host)>;
    using Now = std::function<std::uint64_t()>; // ns of a monotonic clock
    explicit NameAddresses(std::string host);
    NameAddresses(std::string host, LookUp look_up, Now now);

    // Whether it is one of the name's addresses, whatever its port. An answer serves for ten seconds. An address that
    // is not among them causes a look-up, but at most one a second. Without an answer the last one serves on; the next
    // look-up is after a minute, for an address that is not known after ten seconds.
    bool has(const NetAddress& address) const;
    bool has_any() const; // looks up, if that is due

private:
    bool knows(const NetAddress& address) const;
    void ask() const;

    const std::string host_;
    const LookUp look_up_;
    const Now now_;
    mutable std::mutex asking_; // of those who look up; taken before `mutex_`
    mutable std::mutex mutex_;  // guards the following
    mutable std::vector<NetAddress> addresses_;
    mutable std::uint64_t fresh_until_ns_ = 0, not_before_ns_ = 0;
};

} // namespace tinykvm
