// Heads as tests write them.
#pragma once
#include <string>

#include "src/http/reply_head.hpp"
#include "src/http/request_head.hpp"

namespace http_test {

using namespace kvmserver::http;

// Like a connection: the end of the head is looked for first, with the bytes in pieces of `step`.
inline Fault find_end(const std::string& text, std::size_t step, std::size_t& size, const HeadLimits& limits = {}) {
    HeadEnd end;
    for (std::size_t have = std::min(step, text.size());; have = std::min(have + step, text.size())) {
        const auto state = end.feed(std::string_view(text).substr(0, have), limits);
        size = end.size();
        if (state == HeadEnd::State::bad)
            return end.fault();
        if (state == HeadEnd::State::found)
            return {};
        if (have == text.size())
            return {1, "incomplete", ""};
    }
}

inline Fault parse(const std::string& text, RequestHead& head, std::size_t step = 1, const HeadLimits& limits = {}) {
    std::size_t size = 0;
    if (const Fault fault = find_end(text, step, size, limits))
        return fault;
    return parse_request_head(std::string_view(text).substr(0, size), limits, head);
}

inline Fault parse(const std::string& text, ReplyHead& head, const ReplyContext& context = {}) {
    std::size_t size = 0;
    if (const Fault fault = find_end(text, 1, size))
        return fault;
    return parse_reply_head(std::string_view(text).substr(0, size), {}, context, head);
}

} // namespace http_test
