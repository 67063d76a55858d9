// Calls to the host, and the program's memory.
#include "tinykvm/guest/kernel.hpp"

namespace gk {

i64 host_call(u32 nr, u64 a0, u64 a1, u64 a2, u64 a3, u64 a4, u64 a5) {
    abi::HostCall& call = gk_shared_page.call;
    call.nr = nr;
    call.arg[0] = a0;
    call.arg[1] = a1;
    call.arg[2] = a2;
    call.arg[3] = a3;
    call.arg[4] = a4;
    call.arg[5] = a5;
    asm volatile("" ::: "memory");
    gk_host_out();
    asm volatile("" ::: "memory");
    return call.result;
}

void fatal(const char* what) {
    host_call(abi::kPanic, address(what));
    for (;;)
        asm volatile("ud2");
}

namespace {
bool user_range(u64 at, u64 bytes) { return at + bytes >= at && at + bytes <= layout::kUserMax; }
} // namespace

bool copy_from_user(void* to, u64 from, u64 bytes) {
    return user_range(from, bytes) && gk_copy_raw(to, reinterpret_cast<const void*>(from), bytes) == 0;
}

bool copy_to_user(u64 to, const void* from, u64 bytes) {
    return user_range(to, bytes) && gk_copy_raw(reinterpret_cast<void*>(to), from, bytes) == 0;
}

bool clear_user(u64 to, u64 bytes) {
    static const u8 zeros[256] = {};
    while (bytes > 0) {
        const u64 n = bytes < sizeof(zeros) ? bytes : sizeof(zeros);
        if (!copy_to_user(to, zeros, n))
            return false;
        to += n;
        bytes -= n;
    }
    return true;
}

i64 string_from_user(char* to, u64 from, u64 room) {
    for (u64 i = 0; i < room; ++i) {
        if (!copy_from_user(to + i, from + i, 1))
            return -EFAULT;
        if (to[i] == 0)
            return static_cast<i64>(i);
    }
    return -ENAMETOOLONG;
}

i64 Cursor::put(const void* from, u64 bytes) {
    const u8* source = static_cast<const u8*>(from);
    u64 moved = 0;
    while (moved < bytes && index < count) {
        const IoVec& v = vec[index];
        u64 n = v.length - offset;
        if (n == 0) {
            ++index;
            offset = 0;
            continue;
        }
        if (n > bytes - moved)
            n = bytes - moved;
        if (kernel)
            memcpy(reinterpret_cast<void*>(v.base + offset), source + moved, n);
        else if (!copy_to_user(v.base + offset, source + moved, n))
            return moved ? static_cast<i64>(moved) : -EFAULT;
        moved += n;
        offset += n;
        left -= n;
    }
    return static_cast<i64>(moved);
}

i64 Cursor::get(void* to, u64 bytes) {
    u8* target = static_cast<u8*>(to);
    u64 moved = 0;
    while (moved < bytes && index < count) {
        const IoVec& v = vec[index];
        u64 n = v.length - offset;
        if (n == 0) {
            ++index;
            offset = 0;
            continue;
        }
        if (n > bytes - moved)
            n = bytes - moved;
        if (kernel)
            memcpy(target + moved, reinterpret_cast<const void*>(v.base + offset), n);
        else if (!copy_from_user(target + moved, v.base + offset, n))
            return moved ? static_cast<i64>(moved) : -EFAULT;
        moved += n;
        offset += n;
        left -= n;
    }
    return static_cast<i64>(moved);
}

// --- heap ---------------------------------------------------------------------------------------------------------------

namespace {
constexpr u32 kSmallest = 5, kClasses = 23; // 32 bytes to 128 MiB
struct FreeBlock { FreeBlock* next; };
FreeBlock* free_blocks[kClasses];
u64 heap_used;
u32 class_of(u64 bytes) {
    u32 c = 0;
    while ((u64{1} << (c + kSmallest)) < bytes)
        ++c;
    return c;
}
} // namespace

void* allocate(u64 bytes) {
    const u32 c = class_of(bytes);
    if (c >= kClasses)
        return nullptr;
    const u64 size = u64{1} << (c + kSmallest);
    if (FreeBlock* block = free_blocks[c]) {
        free_blocks[c] = block->next;
        memset(block, 0, size < 4096 || bytes < 4096 ? size : bytes);
        return block;
    }
    const u64 align = size < 4096 ? size : 4096;
    const u64 at = (heap_used + align - 1) & ~(align - 1);
    if (at + size > layout::kKernelHeapBytes)
        return nullptr;
    heap_used = at + size;
    return gk_heap + at; // fresh: zero
}

void release(void* p, u64 bytes) {
    if (!p)
        return;
    const u32 c = class_of(bytes);
    auto* block = static_cast<FreeBlock*>(p);
    block->next = free_blocks[c];
    free_blocks[c] = block;
}

} // namespace gk
