// What is wrong with a message: a status for the client, a stable code, and a sentence.
#pragma once

namespace kvmserver::http {

struct Fault {
    unsigned status = 0; // 0: nothing is wrong
    const char* code = "";
    const char* detail = ""; // static string; never contains bytes of the message
    explicit operator bool() const { return status != 0; }
};

} // namespace kvmserver::http
