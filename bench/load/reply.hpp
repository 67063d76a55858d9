// One HTTP/1.1 reply, read as its bytes arrive: its status and where it ends. The body is not kept.
#pragma once
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvmserver::load {

class Reply {
public:
    enum class State { reading, complete, malformed };

    // Takes what has arrived. Bytes after the reply's end are malformed: nothing is pipelined here.
    State feed(std::string_view bytes) {
        if (state_ == State::complete && !bytes.empty())
            state_ = State::malformed;
        if (state_ != State::reading)
            return state_;
        if (!in_body_) {
            head_.append(bytes);
            const std::size_t end = head_.find("\r\n\r\n");
            if (end == std::string::npos)
                return head_.size() > kLongestHead ? state_ = State::malformed : state_;
            const std::string_view all = head_;
            in_body_ = true;
            if (!parse_head(all.substr(0, end)))
                return state_ = State::malformed;
            bytes = all.substr(end + 4);
        }
        return state_ = body(bytes);
    }

    // The server has closed the connection; that is how a reply without a length ends.
    State closed() {
        if (state_ == State::reading)
            state_ = in_body_ && framing_ == Framing::until_close ? State::complete : State::malformed;
        return state_;
    }

    bool begun() const { return !head_.empty(); }
    int status() const { return status_; }
    bool keeps_open() const { return keeps_open_ && framing_ != Framing::until_close; }

private:
    enum class Framing { until_close, length, chunks };
    static constexpr std::size_t kLongestHead = 64 * 1024;

    bool parse_head(std::string_view head) {
        if (!head.starts_with("HTTP/1.") || head.size() < 12 || !number(head.substr(9, 3), 10, status_))
            return false;
        for (std::size_t at = head.find("\r\n"); at != std::string_view::npos;) {
            const std::size_t begin = at + 2;
            at = head.find("\r\n", begin);
            const std::string_view line = head.substr(begin, at == std::string_view::npos ? at : at - begin);
            const std::size_t colon = line.find(':');
            if (colon == std::string_view::npos || !field(line.substr(0, colon), trimmed(line.substr(colon + 1))))
                return false;
        }
        return true;
    }

    bool field(std::string_view name, std::string_view value) {
        if (same(name, "content-length")) {
            framing_ = Framing::length;
            return number(value, 10, left_);
        }
        if (same(name, "transfer-encoding") && same(value, "chunked"))
            framing_ = Framing::chunks;
        if (same(name, "connection") && same(value, "close"))
            keeps_open_ = false;
        return true;
    }

    State body(std::string_view bytes) {
        switch (framing_) {
        case Framing::until_close: return State::reading;
        case Framing::length:
            if (bytes.size() > left_)
                return State::malformed;
            left_ -= bytes.size();
            return left_ == 0 ? State::complete : State::reading;
        case Framing::chunks: return chunks(bytes);
        }
        return State::malformed;
    }

    State chunks(std::string_view bytes) {
        while (!bytes.empty()) {
            if (left_ > 0) {
                const std::size_t taken = std::min<std::size_t>(left_, bytes.size());
                left_ -= taken;
                bytes.remove_prefix(taken);
                continue;
            }
            const std::size_t end = bytes.find('\n');
            line_.append(bytes.substr(0, end));
            if (line_.size() > kLongestHead)
                return State::malformed;
            if (end == std::string_view::npos)
                return State::reading;
            bytes.remove_prefix(end + 1);
            const std::string_view line = trimmed(line_);
            std::uint64_t size = 0;
            if (in_trailer_ && line.empty())
                return bytes.empty() ? State::complete : State::malformed;
            if (!in_trailer_) {
                if (!number(line.substr(0, line.find(';')), 16, size))
                    return State::malformed;
                in_trailer_ = size == 0;
                left_ = size == 0 ? 0 : size + 2; // with the line end after the chunk
            }
            line_.clear();
        }
        return State::reading;
    }

    template <class Number>
    static bool number(std::string_view text, int base, Number& value) {
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
        return error == std::errc{} && end == text.data() + text.size();
    }
    static std::string_view trimmed(std::string_view text) {
        while (!text.empty() && (text.front() == ' ' || text.front() == '\t'))
            text.remove_prefix(1);
        while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r'))
            text.remove_suffix(1);
        return text;
    }
    static bool same(std::string_view text, std::string_view lower) {
        return std::equal(text.begin(), text.end(), lower.begin(), lower.end(),
                          [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + ('a' - 'A') : a) == b; });
    }

    std::string head_, line_;
    State state_ = State::reading;
    Framing framing_ = Framing::until_close;
    bool in_body_ = false, in_trailer_ = false, keeps_open_ = true;
    int status_ = 0;
    std::uint64_t left_ = 0; // of the body, or of the chunk
};

} // namespace kvmserver::load
