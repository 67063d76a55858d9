#include "src/tracing/collector.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <exception>
#include <nlohmann/json.hpp>
#include <sstream>

#include "src/http/fields.hpp"
#include "src/remote/curl.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/read.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::tracing {
namespace {

using tinykvm::ExitCode;
using tinykvm::UserError;

constexpr long kConnectMs = 3000, kTotalMs = 10'000;
constexpr std::size_t kMaxReply = 64 << 10;
constexpr std::size_t kMaxWords = 200; // of the collector, in the log

std::string host_of(const std::string& url) {
    const auto begin = url.find("://") + 3;
    const std::string host = url.substr(begin, url.find('/', begin) - begin);
    return host.starts_with('[') ? host.substr(0, host.find(']') + 1) : host.substr(0, host.find(':'));
}

bool is_loopback(const std::string& host) {
    return host == "localhost" || host == "[::1]" ||
           (host.starts_with("127.") && host.find_first_not_of("0123456789.") == host.npos);
}

// A line for the log of what the collector says: it must not forge lines.
std::string words_of(std::string_view text) {
    std::string out(text.substr(0, kMaxWords));
    std::replace_if(
        out.begin(), out.end(), [](unsigned char c) { return c < 0x20 || c >= 0x7f; }, ' ');
    return out;
}

std::size_t on_body(char* data, std::size_t, std::size_t size, void* user) {
    auto& body = *static_cast<std::string*>(user);
    if (body.size() + size > kMaxReply)
        return 0; // ends the transfer
    body.append(data, size);
    return size;
}

std::size_t on_header(char* data, std::size_t, std::size_t size, void* user) {
    constexpr std::string_view kName = "retry-after:";
    const std::string_view line(data, size);
    if (line.size() > kName.size() && http::equal_nocase(line.substr(0, kName.size()), kName))
        *static_cast<std::string*>(user) = line.substr(kName.size(), 32);
    return size;
}

int on_progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    return *static_cast<const std::atomic<bool>*>(user) ? 1 : 0;
}

// Function processes must not inherit it.
curl_socket_t on_socket(void*, curlsocktype, curl_sockaddr* address) {
    return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

// libcurl's handle and the list of headers, for the exporter's thread.
class Connection {
public:
    Connection(std::string url, const Headers& headers)
        : curl_(remote::Curl::get()), url_(std::move(url)), easy_(curl_.easy_init(), curl_.easy_cleanup),
          headers_(nullptr, curl_.slist_free_all) {
        if (!easy_)
            throw UserError(ExitCode::failure, "--traces: libcurl does not start");
        add("Content-Type: application/json");
        add("Expect:"); // send at once
        for (const auto& [name, value] : headers)
            add(fmt::format("{}: {}", name, value));
        set(CURLOPT_NOSIGNAL, 1L);
        set(CURLOPT_PROTOCOLS_STR, "http,https");
        set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
        set(CURLOPT_USERAGENT, "kvmserver");
        set(CURLOPT_URL, url_.c_str());
        set(CURLOPT_HTTPHEADER, headers_.get());
        set(CURLOPT_CONNECTTIMEOUT_MS, kConnectMs);
        set(CURLOPT_TIMEOUT_MS, kTotalMs);
        set(CURLOPT_ERRORBUFFER, error_);
        set(CURLOPT_WRITEFUNCTION, on_body);
        set(CURLOPT_HEADERFUNCTION, on_header);
        set(CURLOPT_OPENSOCKETFUNCTION, on_socket);
        set(CURLOPT_XFERINFOFUNCTION, on_progress);
        set(CURLOPT_NOPROGRESS, 0L);
        if (is_loopback(host_of(url_)))
            set(CURLOPT_NOPROXY, "*");
        remote::use_authorities(curl_, easy_.get(), "");
    }

    Sent send(const std::string& body, const std::atomic<bool>& stop) {
        std::string reply, retry_after;
        error_[0] = '\0';
        set(CURLOPT_WRITEDATA, &reply);
        set(CURLOPT_HEADERDATA, &retry_after);
        set(CURLOPT_XFERINFODATA, const_cast<std::atomic<bool>*>(&stop));
        set(CURLOPT_POSTFIELDS, body.c_str());
        set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
        const CURLcode code = curl_.easy_perform(easy_.get());
        if (code != CURLE_OK)
            return failed(Sent::How::try_later, error_[0] ? error_ : curl_.easy_strerror(code));
        long status = 0;
        curl_.easy_getinfo(easy_.get(), CURLINFO_RESPONSE_CODE, &status);
        Sent sent = understand(static_cast<unsigned>(status), reply, retry_after);
        if (!sent.why.empty())
            sent.why = fmt::format("{}: {}", url_, sent.why);
        return sent;
    }

    Sent failed(Sent::How how, std::string_view why) const {
        return {.how = how, .why = fmt::format("{}: {}", url_, words_of(why))};
    }

private:
    template <class Value>
    void set(CURLoption option, Value value) {
        curl_.easy_setopt(easy_.get(), option, value);
    }
    void add(const std::string& line) {
        curl_slist* const longer = curl_.slist_append(headers_.get(), line.c_str());
        if (!longer)
            throw std::bad_alloc();
        (void)headers_.release(); // the list's first item stays the same
        headers_.reset(longer);
    }

    const remote::Curl& curl_;
    const std::string url_;
    std::unique_ptr<CURL, decltype(remote::Curl::easy_cleanup)> easy_;
    std::unique_ptr<curl_slist, decltype(remote::Curl::slist_free_all)> headers_;
    char error_[CURL_ERROR_SIZE] = "";
};

} // namespace

std::string traces_url(const std::string& text) {
    if (text.find('@') != text.npos) // not repeated in the message: it may contain a password
        throw UserError(ExitCode::usage,
                        "--traces: write the URL without a user or password: --traces-headers FILE has secrets");
    const std::size_t scheme = text.find("://");
    const bool known = text.starts_with("http://") || text.starts_with("https://");
    if (!known || host_of(text).empty() || text.find_first_of(" ?#\t\r\n") != text.npos)
        throw UserError(ExitCode::usage,
                        fmt::format("--traces: '{}' is no collector: write http://HOST:4318, or https://", text));
    const std::size_t path = text.find('/', scheme + 3);
    if (path != text.npos && path + 1 != text.size())
        return text;
    return text.substr(0, path) + "/v1/traces";
}

Headers read_headers(const std::string& file) {
    const auto wrong = [&](std::size_t line, const char* what) {
        return UserError(ExitCode::usage, fmt::format("--traces-headers {}:{}: {}", file, line, what));
    };
    const tinykvm::UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat facts {};
    if (!fd || ::fstat(fd.get(), &facts) != 0)
        throw UserError(errno == EACCES ? ExitCode::not_permitted : ExitCode::failure,
                        fmt::format("--traces-headers {}: {}", file, std::strerror(errno)));
    if ((facts.st_mode & 007) != 0)
        throw UserError(ExitCode::not_permitted,
                        fmt::format("--traces-headers {0}: everyone may read it: chmod o= {0}", file));
    Headers out;
    std::istringstream text(tinykvm::read_text(fd.get(), "--traces-headers " + file));
    std::string line;
    for (std::size_t number = 1; std::getline(text, line); ++number) {
        if (line.ends_with('\r'))
            line.pop_back();
        if (line.empty() || line.starts_with('#'))
            continue;
        const std::size_t colon = line.find(':');
        if (colon == line.npos || !http::is_token(line.substr(0, colon)))
            throw wrong(number, "a line is NAME: VALUE"); // not repeated: it may be a secret
        const std::string value(http::trimmed(std::string_view(line).substr(colon + 1)));
        if (value.empty() ||
            std::any_of(value.begin(), value.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
            throw wrong(number, "the value is empty, or has a control character");
        out.emplace_back(line.substr(0, colon), value);
    }
    return out;
}

Sent understand(unsigned status, std::string_view body, std::string_view retry_after) {
    Sent out;
    if (status >= 200 && status < 300) {
        const auto reply = nlohmann::json::parse(body, nullptr, false);
        if (!reply.is_object() || !reply.contains("partialSuccess") || !reply["partialSuccess"].is_object())
            return out;
        const auto& partial = reply["partialSuccess"];
        // A string, as all integers of 64 bits; a number is accepted, too.
        if (const auto count = partial.find("rejectedSpans"); count != partial.end()) {
            const std::string text = count->is_string() ? count->get<std::string>() : count->dump();
            std::from_chars(text.data(), text.data() + text.size(), out.rejected);
        }
        const auto message = partial.find("errorMessage");
        const bool told = message != partial.end() && message->is_string();
        if (out.rejected != 0)
            out.why = told ? words_of(message->get<std::string>()) : "the collector rejects spans";
        return out;
    }
    out.why = fmt::format("status {}", status);
    // "Retryable Response Codes" of the specification of OTLP.
    const bool later = status == 429 || status == 502 || status == 503 || status == 504;
    out.how = later ? Sent::How::try_later : Sent::How::refused;
    const std::string_view seconds = http::trimmed(retry_after.substr(0, retry_after.find_last_not_of("\r\n") + 1));
    unsigned wanted = 0;
    if (std::from_chars(seconds.data(), seconds.data() + seconds.size(), wanted).ec == std::errc())
        out.wait = std::chrono::seconds(std::min(wanted, 3600u));
    return out;
}

Send send_to(const std::string& url, const Headers& headers) {
    if (const std::string host = host_of(url); !headers.empty() && url.starts_with("http://") && !is_loopback(host))
        throw UserError(ExitCode::usage,
                        fmt::format("--traces {}: the headers would travel in the clear: use https://", url));
    auto connection = std::make_shared<Connection>(url, headers);
    return [connection](const std::string& body, const std::atomic<bool>& stop) {
        try {
            return connection->send(body, stop);
        } catch (const std::exception& error) { // no memory
            return connection->failed(Sent::How::refused, error.what());
        }
    };
}

} // namespace kvmserver::tracing
