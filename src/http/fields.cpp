#include "src/http/fields.hpp"

#include <array>

namespace kvmserver::http {
namespace {

constexpr std::array<bool, 256> token_table() {
    std::array<bool, 256> table{};
    for (char c = '0'; c <= '9'; ++c)
        table[static_cast<unsigned char>(c)] = true;
    for (char c = 'a'; c <= 'z'; ++c)
        table[static_cast<unsigned char>(c)] = table[static_cast<unsigned char>(c - 'a' + 'A')] = true;
    for (const char c : std::string_view("!#$%&'*+-.^_`|~"))
        table[static_cast<unsigned char>(c)] = true;
    return table;
}
constexpr std::array<bool, 256> kToken = token_table();

bool token_char(char c) { return kToken[static_cast<unsigned char>(c)]; }
bool value_char(char c) { return c == '\t' || (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f); }
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

constexpr Fault bad(const char* code, const char* detail) { return {400, code, detail}; }

Fault scan_line(std::string_view line, Field& field) {
    if (line.front() == ' ' || line.front() == '\t')
        return bad("obsolete-folding", "A header line begins with white space.");
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos)
        return bad("bad-header", "A header line has no colon.");
    field.name = line.substr(0, colon);
    if (!is_token(field.name))
        return bad("bad-header-name", "A header name is empty or holds a character that names may not have.");
    field.value = line.substr(colon + 1);
    for (const char c : field.value)
        if (!value_char(c))
            return bad("bad-header-value", "A header value holds a control character.");
    field.value = trimmed(field.value);
    return {};
}

Fault read_length(std::string_view value, std::uint64_t& length) {
    // 18 digits cannot overflow 64 bits, and no body is longer.
    if (value.empty() || value.size() > 18)
        return bad("bad-content-length", "Content-Length is not a number of 1 to 18 digits.");
    length = 0;
    for (const char c : value) {
        if (c < '0' || c > '9')
            return bad("bad-content-length", "Content-Length is not one plain number.");
        length = length * 10 + static_cast<std::uint64_t>(c - '0');
    }
    return {};
}

} // namespace

bool is_token(std::string_view text) {
    for (const char c : text)
        if (!token_char(c))
            return false;
    return !text.empty();
}

bool equal_nocase(std::string_view a, std::string_view b) {
    if (a.size() != b.size())
        return false;
    for (std::size_t i = 0; i < a.size(); ++i)
        if (lower(a[i]) != lower(b[i]))
            return false;
    return true;
}

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t'))
        text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t'))
        text.remove_suffix(1);
    return text;
}

bool list_has(std::string_view list, std::string_view item) {
    while (!list.empty()) {
        const std::size_t comma = list.find(',');
        if (equal_nocase(trimmed(list.substr(0, comma)), item))
            return true;
        list.remove_prefix(comma == std::string_view::npos ? list.size() : comma + 1);
    }
    return false;
}

Fault scan_fields(std::string_view block, std::size_t max_fields, std::vector<Field>& fields) {
    fields.clear();
    while (!block.empty()) {
        const std::size_t end = block.find("\r\n");
        if (end == std::string_view::npos || end == 0)
            return bad("bad-header", "A header line is incomplete.");
        if (fields.size() == max_fields)
            return {431, "too-many-headers", "There are too many header lines."};
        Field field;
        field.line = block.substr(0, end + 2);
        if (const Fault fault = scan_line(block.substr(0, end), field))
            return fault;
        fields.push_back(field);
        block.remove_prefix(end + 2);
    }
    return {};
}

Fault scan_framing(const std::vector<Field>& fields, int minor_version, Framing& framing) {
    framing = {};
    const Field* length = nullptr;
    const Field* coding = nullptr;
    for (const Field& field : fields) {
        if (equal_nocase(field.name, "content-length")) {
            if (length)
                return bad("bad-content-length", "There is more than one Content-Length.");
            length = &field;
        } else if (equal_nocase(field.name, "transfer-encoding")) {
            if (coding)
                return bad("bad-transfer-encoding", "There is more than one Transfer-Encoding.");
            coding = &field;
        }
    }
    if (length && coding)
        return bad("ambiguous-length", "There is a Content-Length and a Transfer-Encoding.");
    if (coding) {
        if (minor_version == 0)
            return bad("bad-transfer-encoding", "HTTP/1.0 has no Transfer-Encoding.");
        if (!equal_nocase(coding->value, "chunked"))
            return {501, "unknown-transfer-encoding", "The only Transfer-Encoding known is chunked."};
        framing.kind = BodyKind::chunked;
    } else if (length) {
        if (const Fault fault = read_length(length->value, framing.length))
            return fault;
        framing.kind = BodyKind::length;
    }
    return {};
}

} // namespace kvmserver::http
