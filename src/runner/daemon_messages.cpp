#include "src/runner/daemon_messages.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <span>

#include "src/protocol/worker_messages.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/read.hpp"
#include "tinykvm/base/write.hpp"

namespace kvmserver {

using namespace tinykvm;

std::optional<jail::Plan> receive_plan(int control) {
    const auto received = protocol::receive(control, protocol::Wait::yes);
    if (!received || received->message.kind != protocol::Kind::jail || !received->fd)
        return std::nullopt;
    return jail::plan_from(read_text(received->fd.get(), "the plan of a jail"));
}

std::optional<ReceivedPieces> receive_pieces(int control, const std::string& name) {
    ReceivedPieces out;
    for (;;) {
        auto received = protocol::receive_files(control);
        if (!received || received->message.kind != protocol::Kind::pieces)
            return std::nullopt;
        if (received->lost)
            throw UserError(ExitCode::failure,
                            name +
                                ": the pieces of its snapshot are more than the files that its process may have open: "
                                "raise that (ulimit -n, LimitNOFILE= in the unit)");
        std::ranges::move(received->files, std::back_inserter(out.files));
        if (received->message.left > 0)
            continue;
        if (received->message.more_follows == 0)
            return out;
        auto later = protocol::receive(control, protocol::Wait::yes);
        if (!later || later->message.kind != protocol::Kind::later || !later->fd)
            return std::nullopt;
        out.later = std::move(later->fd);
        return out;
    }
}

void answer(int control, const std::string& text) {
    const UniqueFd file(::memfd_create("kvmserver-answer", MFD_CLOEXEC));
    if (!file)
        throw_errno("memfd_create");
    write_all(file.get(), std::as_bytes(std::span(text)), "an answer to the daemon");
    protocol::Message message;
    message.kind = protocol::Kind::described;
    protocol::send(control, message, file.get());
}

} // namespace kvmserver
