#include "src/daemon/process_messages.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <vector>

#include "src/snapshot/byte_source.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/read.hpp"
#include "tinykvm/base/unique_fd.hpp"
#include "tinykvm/base/write.hpp"

namespace kvmserver::daemon {

using namespace tinykvm;

void send_text(int control, const protocol::Message& message, const std::string& text) {
    const UniqueFd file(::memfd_create("kvmserver-assignment", MFD_CLOEXEC));
    if (!file)
        throw_errno("memfd_create");
    write_all(file.get(), std::as_bytes(std::span(text)), "the assignment of a process");
    if (!protocol::send(control, message, file.get()))
        throw_errno("tell a process what it serves");
}

void send_text(int control, protocol::Kind kind, const std::string& text) {
    protocol::Message message;
    message.kind = kind;
    send_text(control, message, text);
}

std::optional<std::string> receive_text(int control, protocol::Kind kind, std::size_t max_bytes,
                                        std::chrono::milliseconds patience) {
    pollfd said{control, POLLIN, 0};
    const auto end = std::chrono::steady_clock::now() + patience;
    for (;;) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
        const int ready = ::poll(&said, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
        if (ready == 0)
            return std::nullopt;
        if (ready > 0)
            break;
        if (errno != EINTR)
            throw_errno("poll");
    }
    const auto received = protocol::receive(control, protocol::Wait::no);
    if (!received || received->message.kind != kind || !received->fd)
        return std::nullopt;
    struct stat info {};
    if (::fstat(received->fd.get(), &info) != 0 || info.st_size < 0 ||
        static_cast<std::uint64_t>(info.st_size) > max_bytes)
        return std::nullopt;
    std::string text(static_cast<std::size_t>(info.st_size), '\0');
    const auto bytes = read_at(received->fd.get(), 0, std::as_writable_bytes(std::span(text)));
    if (!bytes)
        return std::nullopt;
    text.resize(*bytes);
    return text;
}

std::string list_of(const store::PieceFiles& snapshot, const ComesLater& later) {
    std::string list;
    for (std::size_t i = 0; i < snapshot.piece_count(); ++i)
        list += fmt::format("{} {}{}\n", snapshot.piece(i).length, snapshot.piece(i).digest.hex(),
                            !later.empty() && later[i] ? kComesLater : "");
    return list;
}

void require_open_files(const std::string& name, const store::PieceFiles& snapshot) {
    constexpr std::uint64_t kOthers = 64; // for its machines, and what their programs open
    rlimit limit{};
    const std::uint64_t needed = snapshot.piece_count() + kOthers;
    if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < needed)
        throw UserError(ExitCode::failure,
                        fmt::format("{}: its snapshot has {} pieces, and a process may have {} open files "
                                    "here: raise that to {} or more "
                                    "(ulimit -n, LimitNOFILE= in the unit)",
                                    name, snapshot.piece_count(), limit.rlim_cur, needed));
}

// At least kFewFiles per message, and about kFewMessages messages: few files are open at once here, since the daemon
// may be near its limit, and few messages queue up for a slow process.
constexpr std::size_t kFewFiles = 16, kFewMessages = 64;

void send_pieces(int control, const store::PieceFiles& snapshot, const ComesLater& later, int link) {
    std::vector<std::size_t> now;
    for (std::size_t piece = 0; piece < snapshot.piece_count(); ++piece)
        if (later.empty() || !later[piece])
            now.push_back(piece);
    const std::size_t count = now.size();
    const std::size_t at_once = std::clamp(count / kFewMessages, kFewFiles, protocol::kMaxFiles);
    protocol::Message message;
    for (std::size_t first = 0; first < count; first += at_once) {
        std::vector<UniqueFd> files;
        std::vector<int> numbers;
        const std::size_t end = std::min(count, first + at_once);
        for (std::size_t i = first; i < end; ++i)
            numbers.push_back(files.emplace_back(snapshot.open_piece(now[i])).get());
        message.kind = protocol::Kind::pieces;
        message.left = static_cast<std::uint32_t>(count - end);
        message.more_follows = link >= 0;
        if (!protocol::send_files(control, message, numbers))
            throw_errno("give a process the pieces of its snapshot");
    }
    message = {};
    message.kind = protocol::Kind::later;
    if (link >= 0 && !protocol::send(control, message, link))
        throw_errno("give a process its way to further pieces of its snapshot");
}

} // namespace kvmserver::daemon
