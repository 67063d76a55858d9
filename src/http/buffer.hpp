// Bytes that were read and not used yet. Grows when reads fill it, up to a bound; that bound is the back-pressure.
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
    void consume(std::size_t bytes) {
        begin_ += bytes;
        if (begin_ == end_)
            begin_ = end_ = 0;
    }
    void clear() { begin_ = end_ = 0; }
    // Room to read into; views taken before are void. Empty when the bound is reached.
    std::span<char> room() {
        if (begin_ > 0 && capacity_ - end_ < capacity_ / 2) {
            std::memmove(data_.get(), data_.get() + begin_, size());
            end_ -= begin_;
            begin_ = 0;
        }
        if (end_ == capacity_ || (filled_ && capacity_ < max_))
            grow();
        return {data_.get() + end_, capacity_ - end_};
    }
    void added(std::size_t bytes) {
        end_ += bytes;
        filled_ = end_ == capacity_;
    }
    // After a request: a large buffer is not kept for an idle connection.
    void shrink() {
        if (empty() && capacity_ > kFirst) {
            data_.reset();
            capacity_ = begin_ = end_ = 0;
            filled_ = false;
        }
    }

private:
    static constexpr std::size_t kFirst = 8 * 1024;
    void grow() {
        const std::size_t bigger = std::min(max_, capacity_ ? capacity_ * 2 : kFirst);
        if (bigger <= capacity_)
            return;
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
    bool filled_ = false;
};

} // namespace kvmserver::http
