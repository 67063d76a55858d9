#include "src/objects/bucket.hpp"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <thread>

#include "src/common/digest.hpp"
#include "src/remote/curl.hpp"

namespace kvmserver::objects {
namespace {

constexpr int kTries = 3;
constexpr std::chrono::milliseconds kFirstPause{100}; // doubled each time
constexpr long kConnectMs = 3000;
constexpr long kReplyMs = 10'000, kBytesPerMs = 128; // of a request: 10 s, and what 128 kB/s take
// A service that hangs: nothing moves for so long. It finds all objects of a list before it sends the first.
constexpr long kSilentSeconds = 10, kSilentListSeconds = 30;
constexpr std::uint64_t kMaxText = 8 << 20; // of a list or an error

// In the query of a signed request each byte but these is escaped.
std::string escaped(std::string_view text) {
    std::string out;
    for (const unsigned char c : text) {
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                           (c != 0 && std::strchr("-_.~", c) != nullptr);
        out += plain ? std::string(1, static_cast<char>(c)) : fmt::format("%{:02X}", c);
    }
    return out;
}

std::string code_in(const std::vector<std::byte>& body) {
    const std::string_view text(reinterpret_cast<const char*>(body.data()), body.size());
    const auto begin = text.find("<Code>"), end = text.find("</Code>");
    constexpr std::size_t kName = 6, kMaxWord = 64;
    if (begin == text.npos || end == text.npos || end < begin + kName || end - begin > kMaxWord)
        return "";
    const std::string_view word = text.substr(begin + kName, end - begin - kName);
    const bool sound = std::ranges::all_of(word, [](unsigned char c) { return c > 0x20 && c < 0x7f; });
    return sound ? " " + std::string(word) : "";
}

// Processes of functions must not inherit it.
curl_socket_t open_socket(void*, curlsocktype, curl_sockaddr* address) {
    return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

} // namespace

struct Bucket::Request {
    const char* method = "GET";
    std::string path;  // of the URL
    std::string query; // sorted by name, as the signature wants it
    std::span<const std::byte> body{};
    std::uint64_t max_reply = kMaxText;
};

struct Bucket::Reply {
    long status = 0; // 0: none came
    std::vector<std::byte> body;
    std::uint64_t length = 0; // what it says of its body
    std::string why;          // there is none
    std::uint64_t max_bytes = 0;
    bool again = false; // it may go better the next time
    bool too_long = false;
};

class Bucket::Connection {
public:
    Connection() : curl_(remote::Curl::get()), easy_(curl_.easy_init(), curl_.easy_cleanup) {
        if (!easy_)
            throw Failed("libcurl does not start");
    }

    Reply ask(const Request& request, const Address& address, const Credentials& credentials) {
        Reply reply;
        reply.max_bytes = request.max_reply;
        const std::string url = address.endpoint + request.path + (request.query.empty() ? "" : "?" + request.query);
        const std::string signing = fmt::format("aws:amz:{}:s3", address.region);
        const bool head = std::strcmp(request.method, "HEAD") == 0, put = std::strcmp(request.method, "PUT") == 0;
        std::unique_ptr<curl_slist, decltype(remote::Curl::slist_free_all)> headers(nullptr, curl_.slist_free_all);
        const auto add = [&](const std::string& line) {
            curl_slist* const longer = curl_.slist_append(headers.get(), line.c_str());
            if (!longer)
                throw std::bad_alloc();
            (void)headers.release(); // the list's first item stays the same
            headers.reset(longer);
        };
        add("Expect:"); // send at once
        add("x-amz-content-sha256: " + sha256(request.body).hex());
        if (put)
            add("Content-Type: application/octet-stream");
        if (!credentials.session_token.empty())
            add("x-amz-security-token: " + credentials.session_token);
        curl_.easy_reset(easy_.get()); // keeps the connection
        char error[CURL_ERROR_SIZE] = "";
        set(CURLOPT_NOSIGNAL, 1L);
        set(CURLOPT_PROTOCOLS_STR, "http,https");
        set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
        set(CURLOPT_USERAGENT, "kvmserver");
        set(CURLOPT_ERRORBUFFER, error);
        set(CURLOPT_OPENSOCKETFUNCTION, open_socket);
        set(CURLOPT_URL, url.c_str());
        set(CURLOPT_HTTPHEADER, headers.get());
        set(CURLOPT_AWS_SIGV4, signing.c_str());
        set(CURLOPT_USERNAME, credentials.key_id.c_str());
        set(CURLOPT_PASSWORD, credentials.secret.c_str());
        set(CURLOPT_CONNECTTIMEOUT_MS, kConnectMs);
        const std::uint64_t bytes = std::max<std::uint64_t>(request.body.size(), head ? 0 : request.max_reply);
        set(CURLOPT_TIMEOUT_MS, kReplyMs + static_cast<long>(bytes / kBytesPerMs));
        set(CURLOPT_LOW_SPEED_LIMIT, 1L); // bytes a second
        set(CURLOPT_LOW_SPEED_TIME, request.query.empty() ? kSilentSeconds : kSilentListSeconds);
        set(CURLOPT_WRITEFUNCTION, on_body);
        set(CURLOPT_WRITEDATA, &reply);
        remote::use_authorities(curl_, easy_.get(), "");
        if (put) {
            set(CURLOPT_POSTFIELDS, request.body.data());
            set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
        }
        if (head)
            set(CURLOPT_NOBODY, 1L);
        else
            set(CURLOPT_CUSTOMREQUEST, request.method);
        const CURLcode code = curl_.easy_perform(easy_.get());
        if (code != CURLE_OK && !reply.too_long) {
            reply.why = code == CURLE_OPERATION_TIMEDOUT ? "no answer in time"
                        : error[0]                       ? error
                                                         : curl_.easy_strerror(code);
            // Who kept a request waiting for all its time would do so again.
            reply.again = code != CURLE_OPERATION_TIMEDOUT && code != CURLE_PEER_FAILED_VERIFICATION;
            return reply;
        }
        curl_.easy_getinfo(easy_.get(), CURLINFO_RESPONSE_CODE, &reply.status);
        curl_off_t length = -1;
        curl_.easy_getinfo(easy_.get(), CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
        reply.length = length < 0 ? 0 : static_cast<std::uint64_t>(length);
        reply.again = reply.status >= 500 || reply.status == 429;
        return reply;
    }

private:
    static std::size_t on_body(char* data, std::size_t, std::size_t size, void* user) {
        auto& reply = *static_cast<Reply*>(user);
        reply.too_long = reply.body.size() + size > std::max(reply.max_bytes, std::uint64_t{64} << 10);
        if (reply.too_long)
            return 0; // ends the transfer
        try {
            const auto* const bytes = reinterpret_cast<const std::byte*>(data);
            reply.body.insert(reply.body.end(), bytes, bytes + size);
        } catch (const std::bad_alloc&) { // must not cross libcurl's frames
            return 0;
        }
        return size;
    }
    template <class Value>
    void set(CURLoption option, Value value) {
        curl_.easy_setopt(easy_.get(), option, value);
    }

    const remote::Curl& curl_;
    std::unique_ptr<CURL, decltype(remote::Curl::easy_cleanup)> easy_;
};

Bucket::Bucket(Address address, Credentials credentials)
    : address_(std::move(address)), credentials_(std::move(credentials)) {}
Bucket::~Bucket() = default;

std::string Bucket::path_of(const std::string& key) const {
    return fmt::format("/{}/{}{}{}", address_.bucket, address_.prefix, address_.prefix.empty() ? "" : "/", key);
}

std::string Bucket::name_of(const std::string& key) const { return "s3:/" + path_of(key); }

Bucket::Reply Bucket::ask(const Request& request) {
    std::unique_ptr<Connection> connection;
    {
        const std::lock_guard lock(mutex_);
        if (!idle_.empty()) {
            connection = std::move(idle_.back());
            idle_.pop_back();
        }
    }
    if (!connection)
        connection = std::make_unique<Connection>();
    Reply reply;
    auto pause = kFirstPause;
    for (int tried = 1;; ++tried, pause *= 2) {
        reply = connection->ask(request, address_, credentials_);
        if (!reply.again || tried == kTries)
            break;
        std::this_thread::sleep_for(pause);
    }
    {
        const std::lock_guard lock(mutex_);
        idle_.push_back(std::move(connection));
    }
    const std::string where = fmt::format("s3:/{} at {}", request.path, address_.endpoint);
    if (reply.status == 0)
        throw Failed(fmt::format("{}: {}: look whether the service runs and is reached", where, reply.why));
    if (reply.status == 401 || reply.status == 403)
        throw Failed(fmt::format("{}: refused with {}{}: check the credentials, the region, the bucket's policy and "
                                 "this host's clock",
                                 where, reply.status, code_in(reply.body)));
    const bool bucket_missing = reply.status == 404 && code_in(reply.body) == " NoSuchBucket";
    if (bucket_missing)
        throw Failed(fmt::format("{}: there is no bucket {}: make it", where, address_.bucket));
    if ((reply.status < 200 || reply.status > 299) && reply.status != 404)
        throw Failed(fmt::format("{}: the service answers {}{} to {}: its own log says more", where, reply.status,
                                 code_in(reply.body), request.method));
    if (reply.too_long)
        throw Failed(fmt::format("{}: it is longer than the {} bytes that it may have", where, request.max_reply));
    return reply;
}

void Bucket::put(const std::string& key, std::span<const std::byte> bytes) {
    if (ask({.method = "PUT", .path = path_of(key), .query = {}, .body = bytes}).status == 404)
        throw Failed(fmt::format("{} at {}: it cannot be written: make the bucket", name_of(key), address_.endpoint));
}

std::optional<std::vector<std::byte>> Bucket::get(const std::string& key, std::uint64_t max_bytes) {
    Reply reply = ask({.path = path_of(key), .query = {}, .max_reply = max_bytes});
    if (reply.status == 404)
        return std::nullopt;
    return std::move(reply.body);
}

std::optional<std::uint64_t> Bucket::size_of(const std::string& key) {
    const Reply reply = ask({.method = "HEAD", .path = path_of(key), .query = {}});
    return reply.status == 404 ? std::nullopt : std::optional(reply.length);
}

void Bucket::list(const std::string& prefix, const std::function<void(const std::string& key)>& take) {
    const std::string below = address_.prefix.empty() ? "" : address_.prefix + "/";
    std::string token;
    do {
        Request request{.path = "/" + address_.bucket, .query = {}};
        if (!token.empty())
            request.query = "continuation-token=" + escaped(token) + "&";
        request.query += "list-type=2&prefix=" + escaped(below + prefix);
        const Reply reply = ask(request);
        const auto listed =
            parse_list(std::string_view(reinterpret_cast<const char*>(reply.body.data()), reply.body.size()));
        if (reply.status == 404 || !listed)
            throw Failed(fmt::format("{}: the service does not list it: is it an S3 service?", address_.text()));
        for (const std::string& key : listed->keys)
            if (key.starts_with(below))
                take(key.substr(below.size()));
        token = listed->more;
    } while (!token.empty());
}

void Bucket::remove(const std::string& key) { ask({.method = "DELETE", .path = path_of(key), .query = {}}); }

} // namespace kvmserver::objects
