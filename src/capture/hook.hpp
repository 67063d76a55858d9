// Hooks: one request that tells a program what is about to happen to its machine, or has happened.
#pragma once
#include <string>

#include "src/event_loop/event_loop.hpp"
#include "tinykvm/machine/machine.hpp"

namespace kvmserver {

struct Hook {
    const char* name; // "after-restore", for messages
    std::string path, body;
};

// Sends `POST path` with `body` (JSON) and runs the machine until it waits for its next connection. Throws UserError,
// which names the hook, when the program ends, does not answer within max-request-time, or answers with a status other
// than 200 to 299.
void run_hook(tinykvm::Machine& machine, EventLoop& loop, const tinykvm::Limits& limits, const Hook& hook);

} // namespace kvmserver
