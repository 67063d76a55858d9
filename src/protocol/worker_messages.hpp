// Messages between the daemon and function processes: whole messages over SEQPACKET sockets.
//
// Set-up. The daemon has one control socket to each process. Its first message is `jail`, with a file that lists what
// the jail leaves open (src/jail/plan.hpp); no untrusted data arrives before it. `walls` then asks which walls are
// missing. The process answers with a file (`described`) and ends.
// Otherwise the daemon says what the process is to serve. Four `assign` messages carry files: the name and the hook's
// path (one line each), the list of the snapshot's pieces, the hook's body, and the environment. Then `pieces` messages
// bring the files of that list in its order, as many messages as needed. If the `more_follows` of the last one is 1,
// some pieces come later (src/snapshot/byte_source.hpp), and `later` brings a socket for them. There the daemon sends
// each as `later` with its number and file, and closes the socket after the last; the process may send `later` with
// the number of one that it waits for. Then `cache` brings a socket
// (cache_messages.hpp), or none if no page cache is available. If its `more_follows` is 1, the function has a storage,
// and `storage` follows with a socket (storage_messages.hpp). For a machine that can be suspended, `state` follows
// with the file of its saved state, or none. If its `more_follows` is 1, parts of the state (state_file.hpp) are still
// to come: the process prepares what it can, and `state` without a file tells it when the next one is there. After that
// the daemon sends one more socket, a channel, for each request machine that it wants.
//
// The process ends when its control socket is closed, a machine when its channel is. `suspend`, with an empty file,
// comes in place of another channel: once all channels are closed, the process saves its machine's state in that file
// and says `saved`, or `unsaved` if it could not. In both cases it keeps the machine in memory: it may be sent channels
// again, or another `suspend`. `checkpoint`, twice, brings such a file and a socket. The process says
// `unsaved` as soon as the machine can go on, and saves the state meanwhile: it sends `checkpoint` over the socket once
// it has, with the size of what it wrote, and closes it. The next `suspend` or `checkpoint` may bring the same file.
// Then it adds what has changed (state_file.hpp).
//
// Requests. A machine sends `ready` when it can take a request. It is then sent one `request` with the first bytes that
// the program is to read. A request whose first bytes do not fit a message comes with a socket instead, and without
// bytes. So does a connection of a TCP function (`stream`), whose first bytes the machine does not wait for. Usually
// the machine answers with one `reply` that holds everything the program sent. If there is more to read, or the program
// waits before it is done, the machine sends `connect` instead. The daemon answers with `connected` and a socket to the
// client's side, or without one if no descriptor is left. `ended` reports a failure, before the `reply` or the socket's
// end. `ready` follows once the machine is clean. If others wait for the machine, `reply` and `ready` may come in one
// message, since machine time is then scarcer than the client's time. `cancel` says that nobody waits for the reply any
// longer; it may arrive after the reply was sent.
// A machine that keeps its state has one channel for each request that it serves at once. If it ends by itself, it
// sends `ending` on all of them, before any `ended`: the process takes no more requests.
//
// The template (src/daemon/function_template.hpp). `fork` brings the stdout, stderr and control socket of a new
// function process and, if it has one, its control group (cgroup.procs); `state_bytes` is what it prepares ahead. The
// answer is `fork` with its number in `left` and, if it runs, a descriptor of it; otherwise `state_bytes` is errno.
//
// Examiners. A process that examines a snapshot (src/runner/examiner.hpp) also gets `jail`, then one of: `examine` with
// the snapshot's file, `examine_pieces` with the list of its pieces followed by `pieces`, or `describe`, the same for a
// stored snapshot. `left` is the CPU time that it may use, in seconds. It answers with `described` and ends. That file
// holds kFacts and facts (src/snapshot/facts.hpp), or kBadSnapshot or kFailed and a line with the reason.
// `compress` is asked as `examine_pieces` is, and then brings an empty file for the snapshot compressed anew. The
// answer has kPressed and which chunks that were (src/snapshot/pressed.hpp), or kNothing when there were none.
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
    examine_pieces,
    compress,
    ending,
    state,
    suspend,
    storage,
    unsaved,
    checkpoint,
    saved,
    fork,
    later
};

// Prefix of an assignment's ceilings: the process reports what its snapshot claims above them.
inline constexpr char kReportExcess = '!';
// Third line of an assignment: the channels are of one machine that keeps its state (src/runner/kept_machine.hpp).
inline constexpr std::string_view kKept = "kept\n";
// The same, and it can be suspended.
inline constexpr std::string_view kSuspends = "suspends\n";
// Or: request machines give their memory back after so many ms without a request, which follow.
inline constexpr std::string_view kRests = "rests ";

inline constexpr char kFacts = 'f', kPressed = 'p', kNothing = 'n', kBadSnapshot = 'b', kFailed = 'e';

enum class Stream : std::uint8_t {
    no,
    at_port,     // `listen_port` is the port
    at_listener, // it is the number of the program's listener
};

// One layout for all kinds: both sides are the same binary.
struct Message {
    Kind kind = Kind::ready;
    request::Outcome outcome = request::Outcome::ok; // ended: why we, not the program, closed a connection
    std::uint8_t address_bytes = 0;                  // request: 4 or 16, or 0 for a client without an IP address
    std::array<std::uint8_t, 16> address{};
    std::array<char, 16> request_id{}; // request
    std::uint16_t port = 0;            // request: the client's, of a stream
    std::uint16_t listen_port = 0;     // request: where the client of a stream connected
    Stream stream = Stream::no;        // request: for a TCP function's connection, which may idle and be half closed
    std::uint8_t more_follows = 0;     // request: 1 if the program will have more bytes to read; pieces; cache; state
    std::uint8_t others_wait = 0;      // request: 1 if others wait for the machine
    std::uint8_t reset = 0;            // reply: 1 if the program reset its connection
    std::uint8_t ready = 0;            // reply: 1 if it is also a `ready`
    std::uint32_t left = 0;            // pieces: files still to come in further messages; later: the number of a piece;
                                       // examine, describe: seconds
    std::uint64_t state_bytes = 0;     // checkpoint, from the process, and state: what of the file is the state
    // ready: figures of the previous request; with a machine's first `ready`, the first two describe the process
    std::uint64_t restore_us = 0, hot_bytes = 0, exec_us = 0, reset_us = 0, cpu_us = 0, dirty_pages = 0, exits = 0;
};

// Most bytes of a request or a reply in one message.
inline constexpr std::size_t kMaxInline = 64 << 10;
// Both ends of a channel, with send buffers for messages of kMaxInline bytes. Throws HostError.
std::pair<tinykvm::UniqueFd, tinykvm::UniqueFd> make_channel();

// Sends `fd` along unless it is -1. Never blocks and never raises SIGPIPE; returns false (errno is set) on failure.
bool send(int socket, const Message& message, int fd = -1);
// The same with `bytes` after the message, at most kMaxInline.
bool send_bytes(int socket, const Message& message, std::string_view bytes, Wait wait, int fd = -1);
// The same with several descriptors, at most kMaxFiles.
bool send_files(int socket, const Message& message, std::span<const int> files);

struct Received {
    Message message;
    tinykvm::UniqueFd fd;
    std::string_view bytes{}; // points into the caller's `room`
};
// Returns nothing when the other side has closed, when it sent anything that is not a message, or (Wait::no) when
// nothing has arrived; only then `again` is true. `room` receives the bytes after the message; more bytes than that
// also count as the end.
std::optional<Received> receive(int socket, Wait wait, bool* again = nullptr, std::span<char> room = {});

struct ReceivedFiles {
    Message message;
    std::vector<tinykvm::UniqueFd> files;
    bool lost = false; // some descriptors did not arrive: this process has none free
};
// Blocks. Returns nothing in the same cases as receive().
std::optional<ReceivedFiles> receive_files(int socket);

} // namespace kvmserver::protocol
