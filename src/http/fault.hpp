// What is wrong with a message: a status for the client, a stable code, one sentence.
#pragma once

namespace kvmserver::http {

struct Fault {
    unsigned status = 0; // 0: nothing is wrong
    const char* code = "";
    const char* detail = ""; // of static storage; never holds bytes of the message
    explicit operator bool() const { return status != 0; }
};

} // namespace kvmserver::http
