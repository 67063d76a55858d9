#include "src/http/head_end.hpp"

namespace kvmserver::http {

HeadEnd::State HeadEnd::fail(unsigned status, const char* code, const char* detail) {
    fault_ = {status, code, detail};
    return State::bad;
}

HeadEnd::State HeadEnd::feed(std::string_view bytes, const HeadLimits& limits) {
    for (; seen_ < bytes.size(); ++seen_) {
        if (seen_ == limits.head_bytes)
            return fail(431, "header-too-large", "The head of the message is too long.");
        const char c = bytes[seen_];
        if (after_cr_) {
            if (c != '\n')
                return fail(400, "bare-cr", "A CR is not followed by LF.");
            after_cr_ = false;
            first_line_ = false;
            if (line_ == 0) {
                ++seen_;
                return State::found;
            }
            line_ = 0;
        } else if (c == '\r') {
            after_cr_ = true;
        } else if (c == '\n') {
            return fail(400, "bare-lf", "A line ends with LF alone, not with CRLF.");
        } else if ((static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f) {
            return fail(400, "control-character", "The head of the message holds a control character.");
        } else if (++line_ > limits.target_bytes + 64 && first_line_) {
            // 64: room for the longest method, the version and the spaces.
            return fail(414, "target-too-long", "The request target is too long.");
        }
    }
    return State::more;
}

} // namespace kvmserver::http
