// Helpers for calls that move bytes: a file reference held while the call blocks, and the program's iovecs.
#pragma once
#include "tinykvm/guest/calls.hpp"

namespace gk {

inline constexpr u64 kMaxMoved = 0x7ffff000; // MAX_RW_COUNT

// A copy of the program's iovecs. Up to kSmall need no allocation.
class Vectors {
public:
    ~Vectors() {
        if (large_)
            release(large_, count_ * sizeof(IoVec));
    }
    // Copies and checks the vectors; 0 or -errno. The total is limited to kMaxMoved.
    i64 take(u64 at, u64 count) {
        if (count > 1024)
            return -EINVAL;
        count_ = count;
        IoVec* to = small_;
        if (count > kSmall) {
            large_ = static_cast<IoVec*>(allocate(count * sizeof(IoVec)));
            if (!large_)
                return -ENOMEM;
            to = large_;
        }
        if (!copy_from_user(to, at, count * sizeof(IoVec)))
            return -EFAULT;
        total_ = 0;
        for (u64 i = 0; i < count; ++i) {
            if (static_cast<i64>(to[i].length) < 0)
                return -EINVAL;
            if (!user_ok(to[i].base, to[i].length) && to[i].length)
                return -EFAULT;
            if (to[i].length > kMaxMoved - total_)
                to[i].length = kMaxMoved - total_;
            total_ += to[i].length;
        }
        return 0;
    }
    Cursor cursor() { return {large_ ? large_ : small_, count_, total_}; }

private:
    static constexpr u64 kSmall = 8;
    IoVec small_[kSmall];
    IoVec* large_ = nullptr;
    u64 count_ = 0, total_ = 0;
};

// Holds a reference to a descriptor's file, so that it outlives a close by another thread while the call blocks.
class Hold {
public:
    explicit Hold(u64 fd) : file_(file_of(static_cast<i32>(fd))) {
        if (file_)
            ref(file_);
    }
    ~Hold() {
        if (file_)
            unref(file_);
    }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    File* get() const { return file_; }
    explicit operator bool() const { return file_ != nullptr; }

private:
    File* file_;
};

} // namespace gk
