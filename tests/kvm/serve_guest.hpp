// The guest that tells all that it sees of itself and then spoils it: guests/serve.cpp.
#pragma once
#include <cstring>

#include "tests/kvm/world.hpp"

namespace tinykvm::test {

// As in guests/serve.cpp.
enum End { kReply, kExit, kCrash, kSpin, kBomb, kScribble, kSilent, kPort, kHang, kTrap, kIn, kEnds };

// One connection; what the program said about itself (empty when it did not).
inline std::vector<std::uint64_t> invoke(World& world, Machine& machine, std::uint32_t seed, std::uint32_t end,
                                         Stop& stop, double seconds = 30) {
    const std::uint32_t request[2] = {seed, end};
    const std::uint32_t slot = connect_client(machine, {reinterpret_cast<const char*>(request), sizeof(request)});
    world.host.allow(end == kSpin || end == kScribble ? 0.2 : seconds);
    {
        const QuietStreams quiet; // a guest that has gone mad may write to them
        stop = machine.run();
    }
    std::vector<std::uint64_t> facts;
    if (stop.kind != StopKind::waiting || end != kReply)
        return facts;
    const std::string reply = take_reply(machine, slot);
    facts.resize(reply.size() / 8);
    if (!facts.empty())
        std::memcpy(facts.data(), reply.data(), facts.size() * 8);
    return facts;
}

} // namespace tinykvm::test
