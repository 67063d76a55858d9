// What calls that move bytes share: files held while they block, and the program's vectors.
#pragma once
#include "tinykvm/guest/calls.hpp"

namespace gk {

inline constexpr u64 kMaxMoved = 0x7ffff000; // MAX_RW_COUNT

// The program's iovecs, copied in; a few live on the stack.
class Vectors {
public:
    ~Vectors() {
        if (large_)
            release(large_, count_ * sizeof(IoVec));
    }
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

// A file that stays while a call on it blocks, though another thread may close it.
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
