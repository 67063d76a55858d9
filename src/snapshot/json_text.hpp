// Reads JSON from a stream, one value at a time. Only the text of one value is in memory.
#pragma once
#include <functional>
#include <string>

#include "src/snapshot/json_codec.hpp"

namespace kvmserver {

class JsonText {
public:
    static constexpr std::size_t kMaxText = 1 << 20;    // bytes of a value read by value()
    static constexpr std::size_t kMaxValues = 64 << 10; // values nested in it
    static constexpr std::size_t kMaxDepth = 8;         // nesting depth of the whole document

    // `more` returns the next bytes, "" at the end. All of these throw FormatError.
    explicit JsonText(std::function<std::string_view()> more) : more_(std::move(more)) {}

    // Calls `member` for each member of an object; it must consume the value by object(), array() or value(). Duplicate
    // names are an error.
    void object(const std::function<void(const std::string& name)>& member);
    // Likewise for each element of an array; returns their number. `wrong` is called when the value is not an array.
    std::size_t array(const std::function<void(std::size_t index)>& element, const std::function<void()>& wrong);
    Json value(); // reads a complete value
    void expect_end();

private:
    int front(); // next character without consuming it; -1 at the end
    int peek();  // the same, after skipping white space
    int next();
    void expect(char c);
    void copy_string(std::string& text);
    [[noreturn]] static void malformed();

    std::function<std::string_view()> more_;
    std::string_view block_;
    std::size_t depth_ = 0;
};

} // namespace kvmserver
