#include "src/runner/examiner.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <exception>
#include <new>
#include <optional>
#include <string>

#include "src/jail/enter.hpp"
#include "src/jail/spawn.hpp"
#include "src/protocol/worker_messages.hpp"
#include "src/runner/daemon_messages.hpp"
#include "src/snapshot/facts.hpp"
#include "src/snapshot/recompress.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

#ifdef KVMSERVER_SANITIZED
constexpr rlim_t kMaxMemory = RLIM_INFINITY; // the sanitizers' shadow memory takes terabytes
constexpr rlim_t kMaxMemoryToCompress = RLIM_INFINITY;
#else
constexpr rlim_t kMaxMemory = 192 << 20;           // examining needs 32 MiB, this binary takes the rest
constexpr rlim_t kMaxMemoryToCompress = 512 << 20; // zstd's tables and the decompressed index
#endif
constexpr rlim_t kMoreBytes = 1 << 20; // that a file compressed anew may be longer

void limit(__rlimit_resource resource, rlim_t most) {
    const rlimit wanted{most, most};
    if (::setrlimit(resource, &wanted) < 0)
        throw_errno("setrlimit");
}

// With the daemon ends what nobody waits for: to compress takes long, at the lowest priority minutes on a busy host.
// False if the daemon has ended already. After the jail: the kernel forgets the signal when rights change (prctl(2)).
bool end_with_daemon(int control) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    pollfd link{control, 0, 0};
    return ::poll(&link, 1, 0) == 0;
}

std::string compress(const ByteSource& source, int out) {
    limit(RLIMIT_FSIZE, source.size() + kMoreBytes);
    const auto pressed = recompress(source, out);
    return pressed ? protocol::kPressed + to_text(*pressed) : std::string(1, protocol::kNothing);
}

// Returns the answer; nothing if the daemon closed the socket or sent something unexpected.
std::optional<std::string> answer_to_question(int control) {
    using protocol::Kind;
    auto asked = protocol::receive(control, protocol::Wait::yes);
    if (!asked || !asked->fd)
        return std::nullopt;
    const Kind kind = asked->message.kind;
    limit(RLIMIT_AS, kind == Kind::compress ? kMaxMemoryToCompress : kMaxMemory);
    limit(RLIMIT_CPU, asked->message.left);
    if (kind == Kind::examine)
        return protocol::kFacts + to_text(examine_snapshot(asked->fd.get()));
    if (kind != Kind::examine_pieces && kind != Kind::describe && kind != Kind::compress)
        return std::nullopt;
    auto pieces = receive_pieces(control, "a snapshot");
    if (!pieces)
        return std::nullopt;
    const auto source = open_pieces_source(asked->fd.get(), std::move(pieces->files));
    if (kind == Kind::compress) {
        const auto out = protocol::receive(control, protocol::Wait::yes);
        return out && out->fd ? std::optional(compress(*source, out->fd.get())) : std::nullopt;
    }
    return protocol::kFacts +
           to_text(examine_snapshot(*source, kind == Kind::describe ? Depth::metadata : Depth::whole));
}

} // namespace

int run_examiner(UniqueFd control, jail::Mode mode) {
    std::string text;
    try {
        jail::Jail jail(mode, jail::in_own_namespaces() ? jail::Namespaces::spawned : jail::Namespaces::hosts);
        const auto plan = receive_plan(control.get());
        if (!plan)
            return 0;
        jail.enter(*plan);
        if (!end_with_daemon(control.get()))
            return 0;
        auto answer = answer_to_question(control.get());
        if (!answer)
            return 0;
        text = std::move(*answer);
    } catch (const FormatError& error) {
        text = fmt::format("{}{}", protocol::kBadSnapshot, error.what());
    } catch (const std::bad_alloc&) {
        text = fmt::format("{}needs more memory than it may have here", protocol::kBadSnapshot);
    } catch (const UserError& error) {
        text = fmt::format("{}{}", error.code() == ExitCode::bad_snapshot ? protocol::kBadSnapshot : protocol::kFailed,
                           error.what());
    } catch (const std::exception& error) {
        text = fmt::format("{}{}", protocol::kFailed, error.what());
    }
    answer(control.get(), text);
    // Drain the socket: closing it with unread data would cost the daemon the answer (ECONNRESET).
    while (protocol::receive_files(control.get())) {
    }
    return 0;
}

} // namespace kvmserver
