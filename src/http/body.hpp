// Finds where a body ends, for every framing.
#pragma once
#include <algorithm>
#include <string>
#include <string_view>

#include "src/http/chunked.hpp"
#include "src/http/fields.hpp"

namespace kvmserver::http {

class Body {
public:
    Body() = default;
    explicit Body(const Framing& framing) : kind_(framing.kind), left_(framing.length) {}

    // How many of the next bytes belong to the body. For a chunked body `payload` gets the decoded bytes.
    std::size_t feed(std::string_view bytes, std::string* payload = nullptr) {
        if (kind_ == BodyKind::chunked)
            return chunks_.feed(bytes, payload);
        if (kind_ == BodyKind::until_close)
            return bytes.size();
        const std::size_t take = static_cast<std::size_t>(std::min<std::uint64_t>(left_, bytes.size()));
        left_ -= take;
        taken_ += take;
        return take;
    }
    BodyKind kind() const { return kind_; }
    // Never true for a body until close: it ends with the connection.
    bool done() const {
        return kind_ == BodyKind::chunked ? chunks_.done() : kind_ != BodyKind::until_close && left_ == 0;
    }
    const Fault& fault() const { return chunks_.fault(); }
    std::uint64_t payload_bytes() const { return kind_ == BodyKind::chunked ? chunks_.payload_bytes() : taken_; }
    std::uint64_t left() const { return left_; } // for a body with a length

private:
    BodyKind kind_ = BodyKind::none;
    std::uint64_t left_ = 0;
    std::uint64_t taken_ = 0;
    ChunkedBody chunks_;
};

} // namespace kvmserver::http
