// The host's network interfaces as a program sees them: always lo, and the others if it may use the network at all.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace tinykvm {

class Policy;

struct InterfaceAddress {
    std::uint8_t family = 0; // AF_INET, AF_INET6
    std::uint8_t prefix = 0;
    std::uint8_t scope = 0;
    std::array<std::uint8_t, 16> ip{}, broadcast{}; // AF_INET uses the first 4 bytes
    bool has_broadcast = false;
    std::size_t bytes() const { return family == 2 ? 4 : 16; }
};

struct Interface {
    std::uint32_t index = 0;
    std::string name;
    std::uint32_t flags = 0; // IFF_*
    std::uint16_t type = 0;  // ARPHRD_*
    std::uint32_t mtu = 0;
    std::uint32_t queue = 1000; // transmit queue length in packets
    std::array<std::uint8_t, 6> hardware{}, hardware_broadcast{};
    std::vector<InterfaceAddress> addresses;
};

// Asks the host each time; sorted by index. If the host returns nothing, the result is lo.
std::vector<Interface> visible_interfaces(const Policy& policy);

} // namespace tinykvm
