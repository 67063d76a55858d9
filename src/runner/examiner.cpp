#include "src/runner/examiner.hpp"

#include <fmt/format.h>
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
#include "tinykvm/base/error.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

#ifdef KVMSERVER_SANITIZED
constexpr rlim_t kMaxMemory = RLIM_INFINITY; // the sanitizers' shadow memory takes terabytes
#else
constexpr rlim_t kMaxMemory = 192 << 20; // examining needs 32 MiB, this binary takes the rest
#endif

void limit(__rlimit_resource resource, rlim_t most) {
    const rlimit wanted{most, most};
    if (::setrlimit(resource, &wanted) < 0)
        throw_errno("setrlimit");
}

// Returns nothing if the daemon closed the socket or sent something unexpected.
std::optional<SnapshotFacts> examine(int control) {
    auto asked = protocol::receive(control, protocol::Wait::yes);
    if (!asked || !asked->fd)
        return std::nullopt;
    limit(RLIMIT_AS, kMaxMemory);
    limit(RLIMIT_CPU, asked->message.left);
    if (asked->message.kind == protocol::Kind::examine)
        return examine_snapshot(asked->fd.get());
    const bool whole = asked->message.kind == protocol::Kind::examine_pieces;
    if (!whole && asked->message.kind != protocol::Kind::describe)
        return std::nullopt;
    auto pieces = receive_pieces(control, "a snapshot");
    if (!pieces)
        return std::nullopt;
    return examine_snapshot(*open_pieces_source(asked->fd.get(), std::move(*pieces)),
                            whole ? Depth::whole : Depth::metadata);
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
        const auto facts = examine(control.get());
        if (!facts)
            return 0;
        text = protocol::kFacts + to_text(*facts);
    } catch (const FormatError& error) {
        text = fmt::format("{}{}", protocol::kBadSnapshot, error.what());
    } catch (const std::bad_alloc&) {
        text = fmt::format("{}needs more memory to be examined than it may have", protocol::kBadSnapshot);
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
