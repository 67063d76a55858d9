#include "src/http/client_hello.hpp"

#include <algorithm>
#include <cstdint>

namespace kvmserver::http {

namespace {

constexpr std::size_t kMaxName = 253;

// Reads numbers in network byte order and what they are the lengths of. Once something is missing, `ok` stays false and
// everything is empty.
class HelloReader {
public:
    explicit HelloReader(std::string_view bytes) : left_(bytes) {}
    bool ok() const { return ok_; }
    bool empty() const { return left_.empty(); }

    std::string_view take(std::size_t count) {
        ok_ = ok_ && count <= left_.size();
        const std::string_view taken = ok_ ? left_.substr(0, count) : std::string_view();
        left_ = ok_ ? left_.substr(count) : std::string_view();
        return taken;
    }
    std::size_t number(std::size_t bytes) {
        std::size_t value = 0;
        for (const char byte : take(bytes))
            value = value << 8 | static_cast<std::uint8_t>(byte);
        return value;
    }
    // What a length of `bytes` bytes precedes.
    std::string_view vector(std::size_t bytes) { return take(number(bytes)); }

private:
    std::string_view left_;
    bool ok_ = true;
};

std::string host_from(std::string_view name) {
    std::string host(name);
    for (char& c : host) {
        if (c >= 'A' && c <= 'Z')
            c = static_cast<char>(c - 'A' + 'a');
        const bool usual = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
        if (!usual)
            return {};
    }
    return host.size() <= kMaxName ? host : std::string();
}

std::string name_in(std::string_view server_name_extension) {
    constexpr std::size_t kHostName = 0;
    HelloReader in(server_name_extension);
    HelloReader list(in.vector(2));
    while (!list.empty()) {
        const std::size_t type = list.number(1);
        const std::string_view name = list.vector(2);
        if (list.ok() && type == kHostName)
            return host_from(name);
    }
    return {};
}

std::string name_of_hello(std::string_view hello) {
    constexpr std::size_t kVersionAndRandom = 34, kServerName = 0;
    HelloReader in(hello);
    in.take(kVersionAndRandom);
    in.vector(1); // session
    in.vector(2); // cipher suites
    in.vector(1); // compression methods
    HelloReader extensions(in.vector(2));
    while (!extensions.empty()) {
        const std::size_t type = extensions.number(2);
        const std::string_view extension = extensions.vector(2);
        if (extensions.ok() && type == kServerName)
            return name_in(extension);
    }
    return {};
}

} // namespace

std::optional<std::string> server_name_of(std::string_view bytes) {
    constexpr char kHandshake = 22, kMajor = 3, kClientHello = 1;
    constexpr std::size_t kRecordHeader = 5, kMessageHeader = 4, kMaxRecord = 1 << 14;
    const std::string none;
    std::string message; // it may be cut into several records
    for (std::string_view rest = bytes;;) {
        if ((!rest.empty() && rest[0] != kHandshake) || (rest.size() > 1 && rest[1] != kMajor))
            return none;
        HelloReader record(rest);
        record.take(kRecordHeader - 2);
        const std::size_t length = record.number(2);
        if (record.ok() && (length == 0 || length > kMaxRecord))
            return none;
        const std::string_view arrived = rest.substr(std::min(rest.size(), kRecordHeader));
        const std::string_view fragment = arrived.substr(0, length);
        message += fragment;
        if (!message.empty() && message[0] != kClientHello)
            return none;
        HelloReader header(message);
        header.take(1);
        const std::size_t wanted = header.number(3);
        if (header.ok() && wanted + kMessageHeader > kMaxHello)
            return none;
        if (header.ok() && message.size() >= wanted + kMessageHeader)
            return name_of_hello(std::string_view(message).substr(kMessageHeader, wanted));
        if (!record.ok() || arrived.size() < length)
            return bytes.size() < kMaxHello ? std::nullopt : std::optional(none);
        rest = arrived.substr(length);
    }
}

} // namespace kvmserver::http
