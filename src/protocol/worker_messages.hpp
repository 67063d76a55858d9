// What the daemon and the process of a function say to each other: whole messages over SEQPACKET sockets.
//
// The daemon has one such socket to the process, over which it first says what is to be left open of its jail: `jail`,
// with a file of src/jail/plan.hpp. Nothing of a stranger's comes before that. Then it asks which walls are missing
// (`walls`): the process answers with a file (`described`) and ends. Or it says what the process serves: four times
// `assign`, with files of the name and the hook's path (a line each), of the list of the snapshot's pieces,
// of the hook's body, and of the environment; then `pieces`, with the files of that list in its order, as
// many messages as it takes; then `cache`, with a socket (cache_messages.hpp), or with none where there are no
// copies to be had. Then it sends a further socket for each request machine that it wants, its channel. The process
// ends when the first is closed, a machine when its channel is.
//
// A machine says `ready` when it can take a request, and is sent one `request` at a time, with the first bytes that the
// program is to read. Most requests are over then: it answers with a `reply`, all that the program said. Where more is
// to be read, or the program waits before it is done, it says `connect` instead, and is sent `connected` with a socket
// to the client's side, or with none where there are no more. It says `ended` when something went wrong, before the
// `reply` or the socket's end, and `ready` once it is clean; where others wait for the machine both may come in one
// message, for then the machine is what is short and not its client's time. `cancel`: nobody waits for its reply any
// longer; it may come after that. A request whose first bytes are too many comes with its socket, and without bytes.
//
// A process that examines a snapshot (src/runner/examiner.hpp) is told its jail, too, and then `examine`, with the
// snapshot's file, or `examine_pieces`, with the list of its pieces, and `pieces`, or `describe`, with the same of one
// that is stored; `left` is the seconds of
// CPU time that it may take. It answers with `described` and ends: the file is kFacts and facts
// (src/snapshot/facts.hpp), or kBadSnapshot or kFailed and why in a line.
#pragma once
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/protocol/packet.hpp"
#include "src/request/outcome.hpp"

namespace kvmserver::protocol {

enum class Kind : std::uint8_t {
    add_machine = 1,
    request,
    ended,
    ready,
    assign,
    pieces,
    cache,
    jail,
    describe,
    described,
    walls,
    examine,
    reply,
    connect,
    connected,
    cancel,
    examine_pieces
};

// Before the ceilings of an assignment: the process is to tell what its snapshot claims above them.
inline constexpr char kTell = '!';

inline constexpr char kFacts = 'f', kBadSnapshot = 'b', kFailed = 'e';

// One layout for all of them: both sides are the same binary.
struct Message {
    Kind kind = Kind::ready;
    request::Outcome outcome = request::Outcome::ok; // ended: why a connection was closed by us and not by its program
    std::uint8_t address_bytes = 0;                  // request: 4, 16, or 0 where the client has no IP address
    std::array<std::uint8_t, 16> address{};
    std::array<char, 16> request_id{}; // request
    std::uint8_t more_follows = 0;     // request: 1 where its bytes are not all that the program is to read
    std::uint8_t others_wait = 0;      // request: 1 where others wait for the machine
    std::uint8_t reset = 0;            // reply: 1 where the program reset its connection
    std::uint8_t ready = 0;            // reply: 1 where it is a `ready`, too
    std::uint32_t left = 0;            // pieces: files that come in further messages; examine, describe: seconds
    // ready: of the request before, or (the first two) of the process, with a machine's first one
    std::uint64_t restore_us = 0, hot_bytes = 0, exec_us = 0, reset_us = 0, cpu_us = 0, dirty_pages = 0, exits = 0;
};

// Of a request or a reply, in one message.
inline constexpr std::size_t kMaxInline = 64 << 10;
// A channel's two ends, which take such a message. Throws HostError.
std::pair<tinykvm::UniqueFd, tinykvm::UniqueFd> make_channel();

// With a descriptor, when `fd` is none of -1. Never blocks and never raises SIGPIPE: false (errno) when it
// cannot be sent.
bool send(int socket, const Message& message, int fd = -1);
// With `bytes` behind it, kMaxInline at most.
bool send_bytes(int socket, const Message& message, std::string_view bytes, Wait wait, int fd = -1);
// With several: kMaxFiles at most.
bool send_files(int socket, const Message& message, std::span<const int> files);

struct Received {
    Message message;
    tinykvm::UniqueFd fd;
    std::string_view bytes{}; // in the room that was given for them
};
// Nothing: the other side has closed, or (Wait::no) nothing is there: then `again` is set. What is no message
// counts as the end. `room`: for what is behind a message; one that has more counts as the end, too.
std::optional<Received> receive(int socket, Wait wait, bool* again = nullptr, std::span<char> room = {});

struct ReceivedFiles {
    Message message;
    std::vector<tinykvm::UniqueFd> files;
    bool lost = false; // this process may not have so many open: some did not arrive
};
// Waits. Nothing: as above.
std::optional<ReceivedFiles> receive_files(int socket);

} // namespace kvmserver::protocol
