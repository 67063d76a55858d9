#include "src/http/cross_check.hpp"

#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>

namespace kvmserver::http {
namespace {

namespace beast = boost::beast;
using beast::error_code;
using beast::string_view;
using MaybeLength = boost::optional<std::uint64_t>;

// A parser that stores nothing: no allocation per request.
template <bool is_request>
class Reader : public beast::http::basic_parser<is_request> {
public:
    Reader() {
        this->header_limit(0xffffffff); // HeadEnd enforces the limit
        this->body_limit(boost::none);
    }

private:
    void on_request_impl(beast::http::verb, string_view, string_view, int, error_code&) override {}
    void on_response_impl(int, string_view, int, error_code&) override {}
    void on_field_impl(beast::http::field, string_view, string_view, error_code&) override {}
    void on_header_impl(error_code&) override {}
    void on_body_init_impl(const MaybeLength&, error_code&) override {}
    std::size_t on_body_impl(string_view, error_code&) override { return 0; }
    void on_chunk_header_impl(std::uint64_t, string_view, error_code&) override {}
    std::size_t on_chunk_body_impl(std::uint64_t, string_view, error_code&) override { return 0; }
    void on_finish_impl(error_code&) override {}
};

template <bool is_request>
bool agrees(std::string_view head, const Framing& ours, bool without_body) {
    Reader<is_request> reader;
    reader.skip(without_body);
    error_code error;
    const std::size_t used = reader.put(boost::asio::buffer(head.data(), head.size()), error);
    if ((error && error != beast::http::error::need_more) || used != head.size() || !reader.is_header_done())
        return false;
    const MaybeLength length = reader.content_length();
    switch (ours.kind) {
    case BodyKind::chunked: return reader.chunked();
    case BodyKind::length: return !reader.chunked() && length && *length == ours.length;
    default: // without a body Beast reports 0 or nothing
        return !reader.chunked() && (!length || *length == 0);
    }
}

} // namespace

Fault agree_on_request(std::string_view head, const Framing& ours) {
    if (agrees<true>(head, ours, false))
        return {};
    return {400, "bad-request", "The head of the request is malformed."};
}

Fault agree_on_reply(std::string_view head, const Framing& ours, bool head_request) {
    if (agrees<false>(head, ours, head_request))
        return {};
    return {502, "bad-reply", "The head of the program's reply is malformed."};
}

} // namespace kvmserver::http
