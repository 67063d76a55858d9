#include "src/unique/repeats.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <unordered_set>

namespace kvmserver::unique {
namespace {

constexpr std::size_t kShortest = 8, kMaxRepeats = 8;

bool in_token(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '+' || c == '/' || c == '.';
}

// Calls fn(token, position) for each run of token characters.
template <class Fn>
void for_each_token(std::string_view text, Fn&& fn) {
    for (std::size_t at = 0; at < text.size();) {
        if (!in_token(text[at])) {
            ++at;
            continue;
        }
        std::size_t end = at;
        while (end < text.size() && in_token(text[end]))
            ++end;
        std::string_view token = text.substr(at, end - at);
        while (!token.empty() && token.back() == '.') // the end of a sentence
            token.remove_suffix(1);
        if (token.size() >= kShortest)
            fn(token, at);
        at = end;
    }
}

std::unordered_set<std::string_view> tokens_of(std::string_view text) {
    std::unordered_set<std::string_view> tokens;
    for_each_token(text, [&](std::string_view token, std::size_t) { tokens.insert(token); });
    return tokens;
}

// Name of the header that contains the position; "" if it is in the body or the reply is not HTTP.
std::string header_at(std::string_view reply, std::size_t place) {
    const std::size_t head = reply.starts_with("HTTP/") ? reply.find("\r\n\r\n") : std::string_view::npos;
    if (head == reply.npos || place >= head)
        return "";
    const std::size_t begin = reply.rfind('\n', place) + 1, colon = reply.find(':', begin);
    std::string name(reply.substr(begin, colon < place ? colon - begin : 0));
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return name;
}

// Words and names have no digit, and no capital inside.
bool is_random_token(std::string_view token) {
    const auto is = [](auto test) { return [test](char c) { return test(static_cast<unsigned char>(c)) != 0; }; };
    if (std::any_of(token.begin(), token.end(), is([](int c) { return std::isdigit(c); })))
        return true;
    constexpr std::size_t kLongWord = 20;
    return token.size() >= kLongWord ||
           std::any_of(token.begin() + 1, token.end(), is([](int c) { return std::isupper(c); }));
}

// The number that the text is; nullopt if it has another character or too many digits.
std::optional<std::int64_t> number(std::string_view digits) {
    constexpr std::size_t kMaxDigits = 18;
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc{} && end == digits.data() + digits.size() && digits.size() <= kMaxDigits
               ? std::optional(value)
               : std::nullopt;
}

// Whether two tokens of equal length differ only in numbers close together: 0999 and 1000.
bool follows(std::string_view a, std::string_view b) {
    constexpr std::int64_t kClose = 1000;
    const auto differ = static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin());
    const auto first = number(a.substr(differ)), second = number(b.substr(differ));
    return first && second && std::abs(*first - *second) <= kClose;
}

// Whether a later token is a close number, or the same name with a close number at its end: a counter or a time.
bool counts_from(std::string_view token, const std::unordered_set<std::string_view>& later) {
    constexpr std::size_t kTail = 3; // a counter changes only the last characters
    return std::any_of(later.begin(), later.end(), [&](std::string_view other) {
        return other != token && other.size() == token.size() &&
               (other.substr(0, other.size() - kTail) == token.substr(0, token.size() - kTail) ||
                follows(token, other));
    });
}

} // namespace

std::vector<Repeat> find_repeats(std::string_view first, std::string_view second,
                                 const std::vector<std::string>& others) {
    const auto later = tokens_of(second);
    std::vector<std::unordered_set<std::string_view>> elsewhere;
    elsewhere.reserve(others.size());
    for (const std::string& other : others)
        elsewhere.push_back(tokens_of(other));
    std::vector<Repeat> repeats;
    std::unordered_set<std::string_view> reported;
    for_each_token(first, [&](std::string_view token, std::size_t at) {
        const auto has = [&](const auto& tokens) { return tokens.count(token) != 0; };
        if (repeats.size() >= kMaxRepeats || has(later) || !std::all_of(elsewhere.begin(), elsewhere.end(), has) ||
            !is_random_token(token) || counts_from(token, later) || !reported.insert(token).second)
            return;
        const std::string header = header_at(first, at);
        repeats.push_back({std::string(token), header.empty() ? "its body" : "its header " + header});
    });
    return repeats;
}

} // namespace kvmserver::unique
