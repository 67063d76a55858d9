// A buffer for bytes that were read but not used yet. It grows when reads fill it. Its limit provides back-pressure.
#pragma once
#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

namespace kvmserver::http {

class Buffer {
public:
    explicit Buffer(std::size_t max) : max_(max) {}

    std::string_view view() const { return {data_.get() + begin_, end_ - begin_}; }
    std::size_t size() const { return end_ - begin_; }
    bool empty() const { return begin_ == end_; }
    // Moves no bytes: a read into room() may be in progress.
    void consume(std::size_t bytes) { begin_ += bytes; }
    // Space to read into, valid until the next call. Invalidates earlier views. Empty when the limit is reached.
    std::span<char> room() {
        if (begin_ == end_) {
            begin_ = end_ = 0;
            if (capacity_ > kFirst && last_ < kFirst / 2) { // do not keep a large buffer for small messages
                data_.reset();
                capacity_ = 0;
            }
        } else if (capacity_ - end_ < capacity_ / 2) {
            std::memmove(data_.get(), data_.get() + begin_, size());
            end_ -= begin_;
            begin_ = 0;
        }
        if (end_ == capacity_ || filled_)
            grow();
        return {data_.get() + end_, capacity_ - end_};
    }
    // Adds bytes that were not read, even beyond the limit. No read may be in progress.
    void append(std::string_view bytes) {
        if (bytes.empty())
            return;
        if (bytes.size() > capacity_ - end_)
            move_to(size() + bytes.size());
        std::memcpy(data_.get() + end_, bytes.data(), bytes.size());
        end_ += bytes.size();
    }
    void added(std::size_t bytes) {
        end_ += bytes;
        last_ = bytes;
        filled_ = end_ == capacity_;
    }

private:
    static constexpr std::size_t kFirst = 8 * 1024;
    void grow() {
        const std::size_t bigger = std::min(max_, capacity_ ? capacity_ * 2 : kFirst);
        if (bigger > capacity_)
            move_to(bigger);
    }
    void move_to(std::size_t bigger) {
        std::unique_ptr<char[]> data(new char[bigger]); // not zeroed
        if (!empty())
            std::memcpy(data.get(), data_.get() + begin_, size());
        end_ = size();
        begin_ = 0;
        data_ = std::move(data);
        capacity_ = bigger;
        filled_ = false;
    }

    std::unique_ptr<char[]> data_;
    std::size_t capacity_ = 0, begin_ = 0, end_ = 0, max_;
    std::size_t last_ = 0; // bytes of the last read
    bool filled_ = false;
};

} // namespace kvmserver::http
