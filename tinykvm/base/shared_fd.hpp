// A shared file descriptor: holds the descriptor itself, or the object that owns it. The last holder closes it.
#pragma once
#include <memory>
#include <utility>

#include "tinykvm/base/unique_fd.hpp"

namespace tinykvm {

class SharedFd {
public:
    SharedFd() = default;
    SharedFd(UniqueFd fd) : fd_(fd.get()), owner_(fd ? std::make_shared<UniqueFd>(std::move(fd)) : nullptr) {}
    // A descriptor that stays open as long as `owner` lives.
    SharedFd(std::shared_ptr<const void> owner, int fd) : fd_(fd), owner_(std::move(owner)) {}

    int get() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }

private:
    int fd_ = -1;
    std::shared_ptr<const void> owner_;
};

} // namespace tinykvm
