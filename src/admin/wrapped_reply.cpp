#include "src/admin/wrapped_reply.hpp"

#include <openssl/evp.h>

#include <string>
#include <string_view>

#include "tinykvm/base/text.hpp"

namespace kvmserver::admin {
namespace {

using nlohmann::json;

std::string base64(std::string_view bytes) {
    std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0'); // with the NUL that it writes
    const int length =
        EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                        reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
    text.resize(static_cast<std::size_t>(length));
    return text;
}

// Header values are bytes, which may be ISO 8859-1 (RFC 9110, section 5.5).
std::string header_text(const std::string& value) {
    if (tinykvm::is_utf8(value))
        return value;
    std::string text;
    for (const char c : value) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte < 0x80) {
            text += c;
        } else {
            text += static_cast<char>(0xc0 | byte >> 6);
            text += static_cast<char>(0x80 | (byte & 0x3f));
        }
    }
    return text;
}

// The beginning of a body. Text is not cut within a character.
std::string_view beginning(std::string_view body) {
    if (body.size() <= kMaxWrapped)
        return body;
    std::size_t end = kMaxWrapped;
    for (int moved = 0; moved < 3 && (static_cast<unsigned char>(body[end]) & 0xc0) == 0x80; ++moved)
        --end;
    const std::string_view text = body.substr(0, end);
    return tinykvm::is_utf8(text) ? text : body.substr(0, kMaxWrapped);
}

double in_ms(std::uint64_t us) { return static_cast<double>(us) / 1000; }

} // namespace

bool from_browser(const Request& request) {
    for (const char* const name : {"Origin", "Sec-Fetch-Site", "Sec-Fetch-Mode", "Sec-Fetch-Dest"})
        if (!request.header(name).empty())
            return true;
    return false;
}

json wrapped(const daemon::InvokeReply& reply) {
    auto headers = json::array();
    for (const auto& [name, value] : reply.headers)
        headers.push_back({name, header_text(value)});
    const std::string_view body = beginning(reply.body);
    const bool text = tinykvm::is_utf8(body);
    return {{"version", reply.version},
            {"request_id", reply.request_id},
            {"status", reply.status},
            {"reason", header_text(reply.reason)},
            {"headers", std::move(headers)},
            {"body", text ? std::string(body) : base64(body)},
            {"encoding", text ? "text" : "base64"},
            {"body_bytes", reply.body.size()},
            {"cut", body.size() < reply.body.size()},
            {"cold", reply.cold},
            {"timing_ms",
             {{"queue", in_ms(reply.queue_us)},
              {"restore", in_ms(reply.restore_us)},
              {"exec", in_ms(reply.exec_us)},
              {"total", in_ms(reply.total_us)}}}};
}

} // namespace kvmserver::admin
