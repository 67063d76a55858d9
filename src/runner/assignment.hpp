// What the daemon gives to a function's process.
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/ceilings/ceilings.hpp"
#include "src/jail/enter.hpp"
#include "src/runner/daemon_messages.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver {

// What this process is to serve.
struct Assignment {
    std::string name;          // "hello v4", for messages
    std::string after_restore; // path of the warm-up request after a restore, before all others; "": none
    tinykvm::UniqueFd list;    // the list of the snapshot's pieces: byte_source.hpp
    ReceivedPieces pieces;
    tinykvm::UniqueFd values;                 // the body of that request
    tinykvm::UniqueFd cache;                  // the socket to the daemon's cache: cache_client.hpp; may be empty
    tinykvm::UniqueFd storage;                // to the function's storage: storage_client.hpp; empty: it has none
    std::vector<std::string> environment;     // "NAME=VALUE": added to the program's environment
    std::vector<Ceilings> ceilings;           // limits on what it is granted
    bool report_excess = false;               // report what its snapshot claims above its ceilings
    std::chrono::milliseconds rests_after{0}; // without a request, a machine that is reset gives its memory back;
                                              // 0: never
    bool kept = false;                        // one machine keeps its state
    bool suspends = false;                    // and it may be saved
    tinykvm::UniqueFd state;                  // then: where it was saved; may be empty
    std::optional<std::uint64_t> state_bytes; // what there is of it
    bool state_grows = false;                 // parts of it are still to come
};

// Returns nothing if the daemon closed the socket or only asked for the walls. Throws UserError.
std::optional<Assignment> receive_assignment(int control, const jail::Jail& jail);

} // namespace kvmserver
