// JSON that comes in a stream, taken a value at a time: what is held of it is one value's text.
#pragma once
#include <functional>
#include <string>

#include "src/snapshot/json_codec.hpp"

namespace kvmserver {

class JsonText {
public:
    static constexpr std::size_t kMaxText = 1 << 20;    // of a value that is taken whole
    static constexpr std::size_t kMaxValues = 64 << 10; // in it
    static constexpr std::size_t kMaxDepth = 8;         // of the whole text

    // `more` gives the next bytes, "" at the end. All of these throw FormatError.
    explicit JsonText(std::function<std::string_view()> more) : more_(std::move(more)) {}

    // Each member of an object: `member` takes its value, by one of these three. No name comes twice.
    void object(const std::function<void(const std::string& name)>& member);
    // Each element of an array, likewise; returns how many there are. `wrong` is called when it is no array.
    std::size_t array(const std::function<void(std::size_t index)>& element, const std::function<void()>& wrong);
    Json value(); // whole
    void expect_end();

private:
    int front(); // -1 at the end
    int peek();  // the same behind spaces
    int next();
    void expect(char c);
    void copy_string(std::string& text);
    [[noreturn]] static void malformed();

    std::function<std::string_view()> more_;
    std::string_view block_;
    std::size_t depth_ = 0;
};

} // namespace kvmserver
