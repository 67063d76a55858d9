// What a service answers to ListObjectsV2: as much XML as that takes.

#include <utility>

#include "src/objects/bucket.hpp"

namespace kvmserver::objects {
namespace {

// The text of the next element of that name from `at` on, which moves behind it.
std::optional<std::string_view> next_text(std::string_view xml, std::string_view name, std::size_t& at) {
    const std::string open = "<" + std::string(name) + ">", close = "</" + std::string(name) + ">";
    const auto begin = xml.find(open, at);
    const auto end = begin == xml.npos ? begin : xml.find(close, begin);
    if (end == xml.npos)
        return std::nullopt;
    at = end + close.size();
    return xml.substr(begin + open.size(), end - begin - open.size());
}

std::string unescaped(std::string_view text) {
    constexpr std::pair<std::string_view, char> kNames[] = {{"&amp;", '&'},  {"&lt;", '<'},    {"&gt;", '>'},
                                                            {"&quot;", '"'}, {"&apos;", '\''}, {"&#34;", '"'},
                                                            {"&#39;", '\''}};
    std::string out;
    while (!text.empty()) {
        bool found = false;
        for (const auto& [name, sign] : kNames)
            if (!found && text.starts_with(name)) {
                out += sign;
                text.remove_prefix(name.size());
                found = true;
            }
        if (!found) {
            out += text.front();
            text.remove_prefix(1);
        }
    }
    return out;
}

} // namespace

std::optional<Listed> parse_list(std::string_view xml) {
    const auto begin = xml.find("<ListBucketResult");
    if (begin == xml.npos || xml.find("</ListBucketResult>", begin) == xml.npos)
        return std::nullopt;
    Listed out;
    for (std::size_t at = begin; const auto object = next_text(xml, "Contents", at);) {
        std::size_t inner = 0;
        const auto key = next_text(*object, "Key", inner);
        if (!key)
            return std::nullopt;
        out.keys.push_back(unescaped(*key));
    }
    std::size_t at = begin;
    if (const auto cut = next_text(xml, "IsTruncated", at); cut && *cut == "true") {
        at = begin;
        const auto more = next_text(xml, "NextContinuationToken", at);
        if (!more || more->empty())
            return std::nullopt;
        out.more = unescaped(*more);
    }
    return out;
}

} // namespace kvmserver::objects
