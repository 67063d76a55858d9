#include "src/snapshot/json_text.hpp"

#include <set>

namespace kvmserver {
namespace {

constexpr std::size_t kMaxMembers = 1000; // of an object read by object()

void add(std::string& text, int c) {
    if (text.size() >= JsonText::kMaxText)
        throw FormatError("metadata is inconsistent: a value of it is too long");
    text += static_cast<char>(c);
}

[[noreturn]] void too_deep() { throw FormatError("metadata is inconsistent: it is nested too deep"); }

} // namespace

void JsonText::malformed() { throw FormatError("metadata is inconsistent: it is not JSON"); }

int JsonText::front() {
    if (block_.empty())
        block_ = more_();
    return block_.empty() ? -1 : static_cast<unsigned char>(block_.front());
}

int JsonText::next() {
    const int c = front();
    if (c >= 0)
        block_.remove_prefix(1);
    return c;
}

int JsonText::peek() {
    for (;;) {
        const int c = front();
        if (c != ' ' && c != '\n' && c != '\t' && c != '\r')
            return c;
        block_.remove_prefix(1);
    }
}

void JsonText::expect(char c) {
    if (peek() != static_cast<unsigned char>(c))
        malformed();
    next();
}

void JsonText::copy_string(std::string& text) {
    add(text, next()); // the opening quote
    for (;;) {
        const int c = next();
        if (c < 0)
            malformed();
        add(text, c);
        if (c == '"')
            return;
        if (c == '\\') {
            const int escaped = next();
            if (escaped < 0)
                malformed();
            add(text, escaped);
        }
    }
}

// Brackets and quotes tell where the value ends; the parser decides whether it is valid JSON.
Json JsonText::value() {
    std::string text;
    std::size_t open = 0;
    for (int c = peek(); c >= 0; c = front()) {
        if (c == '"') {
            copy_string(text);
            continue;
        }
        if ((c == ']' || c == '}' || c == ',') && open == 0)
            break; // the enclosing array or object continues
        if (c == '[' || c == '{') {
            if (depth_ + ++open > kMaxDepth)
                too_deep();
        } else if (c == ']' || c == '}') {
            --open;
        }
        add(text, next());
    }
    std::size_t values = 0;
    const auto count = [&](int, Json::parse_event_t, Json&) { return ++values <= 2 * kMaxValues; };
    Json json = Json::parse(text, count, false);
    if (values > 2 * kMaxValues)
        throw FormatError("metadata is inconsistent: a value of it is too long");
    if (json.is_discarded())
        malformed();
    return json;
}

void JsonText::object(const std::function<void(const std::string& name)>& member) {
    expect('{');
    if (++depth_ > kMaxDepth)
        too_deep();
    std::set<std::string> names;
    for (bool first = true; peek() != '}'; first = false) {
        if (!first)
            expect(',');
        if (peek() != '"')
            malformed();
        std::string text;
        copy_string(text);
        const Json name = Json::parse(text, nullptr, false);
        if (!name.is_string())
            malformed();
        expect(':');
        if (names.size() >= kMaxMembers || !names.insert(name.get<std::string>()).second)
            throw FormatError(fmt::format("metadata is inconsistent: it has \"{}\" twice, or too much",
                                          tinykvm::printable(name.get<std::string>().substr(0, 100))));
        member(name.get<std::string>());
    }
    next();
    --depth_;
}

std::size_t JsonText::array(const std::function<void(std::size_t index)>& element, const std::function<void()>& wrong) {
    if (peek() != '[')
        wrong();
    expect('[');
    if (++depth_ > kMaxDepth)
        too_deep();
    std::size_t count = 0;
    while (peek() != ']') {
        if (count > 0)
            expect(',');
        element(count++);
    }
    next();
    --depth_;
    return count;
}

void JsonText::expect_end() {
    if (peek() >= 0)
        malformed();
}

} // namespace kvmserver
