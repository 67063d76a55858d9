#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "src/remote/curl.hpp"
#include "src/remote/transport.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::remote {
namespace {

using tinykvm::ExitCode;
using tinykvm::UserError;

constexpr double kStallSeconds = 30; // without an uploaded byte that the server takes

// The state of one request while curl works on it.
struct Transfer {
    using Clock = std::chrono::steady_clock;

    const Ask& ask;
    double stall_seconds;
    Reply reply;
    std::size_t body_at = 0;
    Clock::time_point moved = Clock::now(); // when the last byte was sent
    curl_off_t left_bytes = 0;
    bool head_ended = false; // else the connection has: curl itself takes the beginning of a head for all of it
    bool too_long = false, ended_by_sink = false, stalled = false;
    std::exception_ptr error = nullptr; // from a callback of ours: exceptions must not cross curl
};

// Ends an upload that the server no longer reads. curl's own limit (CURLOPT_LOW_SPEED_TIME) also counts while the
// server processes the upload, so it has to be long. Without this one, a server that vanished or closed only its side
// would hold an upload for all of --timeout.
int on_progress(void* user, curl_off_t, curl_off_t, curl_off_t total, curl_off_t sent) {
    auto& transfer = *static_cast<Transfer*>(user);
    const auto now = Transfer::Clock::now();
    if (sent != transfer.left_bytes || sent >= total) {
        transfer.left_bytes = sent;
        transfer.moved = now;
    }
    transfer.stalled = std::chrono::duration<double>(now - transfer.moved).count() > transfer.stall_seconds;
    return transfer.stalled ? 1 : 0;
}

// An exception of a callback is stored, since it must not cross libcurl's C frames.
std::size_t on_header(char* data, std::size_t, std::size_t size, void* user) try {
    auto& transfer = *static_cast<Transfer*>(user);
    std::string_view line(data, size);
    while (line.ends_with('\n') || line.ends_with('\r'))
        line.remove_suffix(1);
    if (line.starts_with("HTTP/")) { // a new reply: interim replies and those of proxies come first
        transfer.reply.headers.clear();
        transfer.head_ended = false;
        const auto space = line.find(' ');
        transfer.reply.status =
            space == line.npos ? 0 : static_cast<unsigned>(std::atoi(line.substr(space + 1).data()));
    } else if (line.empty()) {
        transfer.head_ended = transfer.reply.status >= 200;
    } else if (const auto colon = line.find(':'); colon != line.npos) {
        auto value = line.substr(colon + 1);
        value.remove_prefix(std::min(value.find_first_not_of(" \t"), value.size()));
        transfer.reply.headers.emplace_back(line.substr(0, colon), value);
    }
    return size;
} catch (...) {
    static_cast<Transfer*>(user)->error = std::current_exception();
    return 0;
}

std::size_t on_body(char* data, std::size_t, std::size_t size, void* user) {
    auto& transfer = *static_cast<Transfer*>(user);
    try {
        if (transfer.ask.sink && transfer.reply.status < 400) {
            if (transfer.ask.sink({data, size}))
                return size;
            transfer.ended_by_sink = true;
            return 0;
        }
        transfer.too_long = transfer.reply.body.size() + size > kMaxReply;
        if (transfer.too_long)
            return 0;
        transfer.reply.body.append(data, size);
        return size;
    } catch (...) {
        transfer.error = std::current_exception();
        return 0;
    }
}

std::size_t on_read(char* data, std::size_t, std::size_t size, void* user) {
    auto& transfer = *static_cast<Transfer*>(user);
    try {
        std::size_t count;
        if (transfer.ask.source) {
            count = transfer.ask.source(data, size);
        } else {
            count = std::min(size, transfer.ask.body.size() - transfer.body_at);
            std::memcpy(data, transfer.ask.body.data() + transfer.body_at, count);
            transfer.body_at += count;
        }
        transfer.reply.sent += count;
        return count;
    } catch (...) {
        transfer.error = std::current_exception();
        return CURL_READFUNC_ABORT;
    }
}

class CurlTransport final : public Transport {
public:
    explicit CurlTransport(const Server& server) : curl_(Curl::get()), easy_(curl_.easy_init()), server_(server) {
        if (!easy_)
            throw Broken("libcurl does not start");
        set(CURLOPT_NOSIGNAL, 1L);
        set(CURLOPT_PROTOCOLS_STR, "http,https");
        set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
        set(CURLOPT_CONNECTTIMEOUT, long{kConnectSeconds});
        set(CURLOPT_USERAGENT, "kvmserver");
        set(CURLOPT_ERRORBUFFER, error_);
        if (!server_.socket.empty())
            use_socket();
        else if (server_.url.starts_with("http://"))
            set(CURLOPT_NOPROXY, "*"); // loopback: the token stays on this host
        if (server_.token.empty() && server_.socket.empty())
            set(CURLOPT_NETRC, static_cast<long>(CURL_NETRC_OPTIONAL));
        use_authorities(curl_, easy_, server_.ca_file);
    }
    ~CurlTransport() override {
        if (easy_)
            curl_.easy_cleanup(easy_);
    }
    CurlTransport(const CurlTransport&) = delete;
    CurlTransport& operator=(const CurlTransport&) = delete;

    Reply ask(const Ask& ask) override {
        Transfer transfer{.ask = ask, .stall_seconds = std::min(kStallSeconds, server_.timeout_seconds), .reply = {}};
        const std::string base = server_.socket.empty() ? server_.url : "http://localhost";
        const std::string url = (base.ends_with('/') ? base.substr(0, base.size() - 1) : base) + ask.target;
        set(CURLOPT_URL, url.c_str());
        set(CURLOPT_HEADERFUNCTION, on_header);
        set(CURLOPT_HEADERDATA, &transfer);
        set(CURLOPT_WRITEFUNCTION, on_body);
        set(CURLOPT_WRITEDATA, &transfer);
        set(CURLOPT_READFUNCTION, on_read);
        set(CURLOPT_READDATA, &transfer);
        set(CURLOPT_XFERINFOFUNCTION, on_progress);
        set(CURLOPT_XFERINFODATA, &transfer);
        set(CURLOPT_NOPROGRESS, ask.transfer ? 0L : 1L);
        set_method(ask);
        set_limits(ask);
        const auto free = [this](curl_slist* list) { curl_.slist_free_all(list); };
        std::unique_ptr<curl_slist, decltype(free)> headers(header_list(ask), free);
        set(CURLOPT_HTTPHEADER, headers.get());
        error_[0] = '\0';
        const CURLcode code = curl_.easy_perform(easy_);
        if (transfer.error)
            std::rethrow_exception(transfer.error);
        if (transfer.stalled)
            throw Broken(fmt::format("{}: it takes no more bytes", server_.shown()));
        if (transfer.too_long)
            throw UserError(ExitCode::failure, fmt::format("{}: the reply is too long", url));
        if (code != CURLE_OK && !transfer.ended_by_sink)
            // The server may refuse before it has read the whole body. Its reply is more useful than the send error.
            if (!(transfer.reply.status >= 400 && code == CURLE_SEND_ERROR))
                fail(code);
        if (!transfer.head_ended)
            throw Broken(fmt::format("{}: its reply broke off", server_.shown()));
        return std::move(transfer.reply);
    }

private:
    template <class Value>
    void set(CURLoption option, Value value) {
        curl_.easy_setopt(easy_, option, value);
    }

    // Works for a path of any length: sun_path holds only 107 characters.
    void use_socket() {
        folder_.reset(::open(server_.socket.parent_path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
        const std::string path = fmt::format("/proc/self/fd/{}/{}", folder_.get(), server_.socket.filename().string());
        set(CURLOPT_UNIX_SOCKET_PATH, path.c_str());
        set(CURLOPT_NOPROXY, "*");
    }

    void set_method(const Ask& ask) {
        const bool head = ask.method == "HEAD";
        const bool body = ask.source || !ask.body.empty() || ask.method == "PATCH";
        set(CURLOPT_UPLOAD, 0L);
        set(CURLOPT_NOBODY, 0L);
        set(CURLOPT_HTTPGET, 1L);
        if (body) {
            set(CURLOPT_UPLOAD, 1L);
            const std::uint64_t bytes = ask.source ? ask.body_bytes : ask.body.size();
            set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(bytes));
        }
        set(CURLOPT_NOBODY, head ? 1L : 0L);
        set(CURLOPT_CUSTOMREQUEST, head ? nullptr : ask.method.c_str());
    }

    void set_limits(const Ask& ask) {
        const double seconds = server_.timeout_seconds;
        const bool stream = ask.transfer || ask.endless;
        set(CURLOPT_TIMEOUT_MS, stream ? 0L : std::max(1L, static_cast<long>(seconds * 1000)));
        set(CURLOPT_LOW_SPEED_LIMIT, ask.transfer ? 1L : 0L);
        set(CURLOPT_LOW_SPEED_TIME, ask.transfer ? std::max(1L, static_cast<long>(seconds + 0.999)) : 0L);
    }

    curl_slist* header_list(const Ask& ask) {
        curl_slist* list = nullptr;
        const auto add = [&](const std::string& line) { list = curl_.slist_append(list, line.c_str()); };
        for (const auto& [name, value] : ask.headers)
            add(fmt::format("{}: {}", name, value));
        if (!server_.token.empty())
            add("Authorization: Bearer " + server_.token);
        if (!ask.body.empty())
            add("Content-Type: application/json");
        if (!ask.source)
            add("Expect:"); // send small bodies at once
        return list;
    }

    [[noreturn]] void fail(CURLcode code) const {
        const std::string why = error_[0] ? error_ : curl_.easy_strerror(code);
        if (code == CURLE_OPERATION_TIMEDOUT)
            throw Broken(fmt::format("{}: {}: --timeout gives it longer", server_.shown(), why));
        if (code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE)
            throw UserError(ExitCode::unreachable,
                            fmt::format("{}: its certificate is not trusted: {}: --cacert FILE names its authority",
                                        server_.shown(), why));
        throw Broken(fmt::format("{}: {}", server_.shown(), why));
    }

    const Curl& curl_;
    CURL* easy_;
    const Server& server_;
    tinykvm::UniqueFd folder_;
    char error_[CURL_ERROR_SIZE] = "";
};

} // namespace

std::unique_ptr<Transport> curl_transport(const Server& server) { return std::make_unique<CurlTransport>(server); }

} // namespace kvmserver::remote
