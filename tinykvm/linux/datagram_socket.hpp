// Internet datagram sockets as plain values: what an image keeps of one whose descriptor it does not keep.
#pragma once
#include <cstdint>
#include <vector>

#include "tinykvm/base/unique_fd.hpp"

namespace tinykvm {

struct HandleInfo;

// What a snapshot's file says may be anything: no ICMP sockets.
bool is_internet_datagram(int family, int type, int protocol);
// Whether a sockaddr has a port other than 0. Not of an empty one.
bool names_port(const std::vector<std::uint8_t>& address);
// A datagram socket that holds nothing but its settings: no port that the program has named. A new one is as good.
bool can_be_made_anew(const HandleInfo& info);
// Notes the peer and the options of the socket.
void note_settings(int fd, HandleInfo& info);
// A socket with these settings, bound and connected. Null with errno set when it cannot be had.
UniqueFd make_datagram_socket(const HandleInfo& info);

} // namespace tinykvm
