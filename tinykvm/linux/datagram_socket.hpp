// Internet datagram sockets as plain values, which a snapshot keeps in place of the descriptor.
#pragma once
#include <cstdint>
#include <vector>

#include "tinykvm/base/unique_fd.hpp"

namespace tinykvm {

struct HandleInfo;

// Checks values from a snapshot file, which are not trusted: UDP only, no ICMP sockets.
bool is_internet_datagram(int family, int type, int protocol);
// Whether a sockaddr has a port other than 0. False for an empty one.
bool names_port(const std::vector<std::uint8_t>& address);
// Whether a new socket can replace this one: it has settings only, and no port that the program chose.
bool can_be_made_anew(const HandleInfo& info);
// Stores the peer and the options of the socket in `info`.
void note_settings(int fd, HandleInfo& info);
bool is_v6_only(int fd); // IPV6_V6ONLY
// Lets a socket be bound to a port that other programs in a shared network have bound (Permissions::shared_network), of
// which none is to learn. Nothing arrives at such ports.
void share_port(int fd);
void share_port(HandleInfo& info); // of one that is to be made
bool shares_port(int fd);          // also if the program itself has allowed it: SO_REUSEADDR, SO_REUSEPORT
// Makes a socket with these settings, bound and connected. Null with errno set on failure.
UniqueFd make_datagram_socket(const HandleInfo& info);

} // namespace tinykvm
