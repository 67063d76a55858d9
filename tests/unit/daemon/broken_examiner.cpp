// broken_examiner KIND: an examiner that answers as one that a snapshot has taken over may.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "src/protocol/worker_messages.hpp"
#include "tinykvm/base/write.hpp"

using namespace kvmserver;

namespace {

constexpr int kControl = 3;

void say(const std::string& text, protocol::Kind kind = protocol::Kind::described) {
    const tinykvm::UniqueFd file(::memfd_create("answer", MFD_CLOEXEC));
    tinykvm::write_all(file.get(), std::as_bytes(std::span(text)), "the answer");
    protocol::Message message;
    message.kind = kind;
    protocol::send(kControl, message, file.get());
}

[[noreturn]] void stay() {
    for (;;)
        ::pause();
}

} // namespace

int main(int argc, char** argv) {
    const std::string kind = argc > 1 ? argv[1] : "";
    if (kind == "gone at once")
        return 3;
    if (!protocol::receive(kControl, protocol::Wait::yes) ||
        !protocol::receive_files(kControl)) // its jail, the question
        return 4;
    if (kind == "exits")
        return 3;
    if (kind == "crashes")
        ::raise(SIGABRT); // AddressSanitizer would make a SIGSEGV an exit
    if (kind == "out of time")
        ::raise(SIGKILL);
    if (kind == "silent")
        stay();
    if (kind == "bad snapshot")
        say("bit is\n\x1b[31mwrong");
    else if (kind == "fails")
        say("eno idea");
    else if (kind == "nonsense")
        say("x");
    else if (kind == "no facts")
        say("f[[[[");
    else if (kind == "too long")
        say("f" + std::string(3 << 20, ' '));
    else if (kind == "empty")
        say("");
    else if (kind == "another message")
        say("f{}", protocol::Kind::ready);
    else if (kind == "no file")
        protocol::send(kControl, {.kind = protocol::Kind::described});
    stay();
}
