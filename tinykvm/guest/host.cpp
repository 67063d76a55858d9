// Host calls, access to the program's memory, and the heap.
#include "tinykvm/guest/kernel.hpp"

namespace gk {

namespace {

u64 changes;

// Whether a call may change the result of fstat for some file.
bool changes_files(u32 nr, u64 flags) {
    constexpr u64 kCreates = 0x40 | 0x200; // O_CREAT, O_TRUNC
    switch (nr) {
    case 76:
    case 77:
    case 91:
    case 93:
    case 258:
    case 260:
    case 263:
    case 264:
    case 265:
    case 266:
    case 268:
    case 280:
    case 285:
    case 296:
    case 316:
    case 452: return true;
    case 257: return (flags & kCreates) != 0;
    default: return false;
    }
}

} // namespace

bool file_mapped;

u64 file_changes() { return changes + gk_shared_page.generation; } // a restore or reset counts as a change

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
    const i64 result = call.result;
    if (nr != abi::kPoll)
        forget_answers();
    if (changes_files(nr, a2))
        ++changes;
    time_slice();
    return result;
}

i64 pass_call(u32 nr, u64 a0, u64 a1, u64 a2, u64 a3, u64 a4, u64 a5) {
    const u64 all[] = {a0, a1, a2, a3, a4, a5};
    for (const u64 a : all)
        if (a >= layout::kUserMax && a < u64{1} << 47)
            return -EFAULT;
    return host_call(nr, a0, a1, a2, a3, a4, a5);
}

void fatal(const char* what) {
    host_call(abi::kPanic, address(what));
    for (;;)
        asm volatile("ud2");
}

bool user_ok(u64 at, u64 bytes) { return at + bytes >= at && at + bytes <= layout::kUserMax; }

bool copy_from_user(void* to, u64 from, u64 bytes) {
    return user_ok(from, bytes) && gk_copy_raw(to, reinterpret_cast<const void*>(from), bytes) == 0;
}

bool copy_to_user(u64 to, const void* from, u64 bytes) {
    return user_ok(to, bytes) && gk_copy_raw(reinterpret_cast<void*>(to), from, bytes) == 0;
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

void Cursor::advance(u64 bytes) {
    left -= bytes;
    while (bytes > 0) {
        const u64 n = vec->length < bytes ? vec->length : bytes;
        vec->base += n;
        vec->length -= n;
        bytes -= n;
        if (vec->length == 0) {
            ++vec;
            --count;
        }
    }
}

void Cursor::shorten(u64 bytes) {
    left = bytes;
    for (u64 i = 0; i < count; ++i) {
        vec[i].length = vec[i].length < bytes ? vec[i].length : bytes;
        bytes -= vec[i].length;
    }
}

namespace {
// Moves up to `bytes` by calls of copy(program address, offset, bytes).
template <class Copy>
i64 walk(Cursor& c, u64 bytes, Copy copy) {
    u64 moved = 0;
    while (moved < bytes && c.count > 0) {
        const IoVec& v = *c.vec;
        const u64 n = v.length < bytes - moved ? v.length : bytes - moved;
        if (n == 0) {
            ++c.vec;
            --c.count;
            continue;
        }
        if (!copy(v.base, moved, n))
            return moved ? static_cast<i64>(moved) : -EFAULT;
        moved += n;
        c.advance(n);
    }
    return static_cast<i64>(moved);
}
} // namespace

i64 Cursor::put(const void* from, u64 bytes) {
    const u8* source = static_cast<const u8*>(from);
    return walk(*this, bytes, [&](u64 at, u64 done, u64 n) {
        if (kernel)
            memcpy(reinterpret_cast<void*>(at), source + done, n);
        return kernel || copy_to_user(at, source + done, n);
    });
}

i64 Cursor::get(void* to, u64 bytes) {
    u8* target = static_cast<u8*>(to);
    return walk(*this, bytes, [&](u64 at, u64 done, u64 n) {
        if (kernel)
            memcpy(target + done, reinterpret_cast<const void*>(at), n);
        return kernel || copy_from_user(target + done, at, n);
    });
}

// --- heap ----------------------------------------------------------------------------------------

namespace {
constexpr u32 kSmallest = 5, kClasses = 23; // 32 bytes to 128 MiB
struct FreeBlock {
    FreeBlock* next;
};
FreeBlock* free_blocks[kClasses];
u64 heap_used;
u32 class_of(u64 bytes) {
    u32 c = 0;
    while (c < kClasses && (u64{1} << (c + kSmallest)) < bytes)
        ++c;
    return c;
}
} // namespace

void* allocate_dirty(u64 bytes) {
    const u32 c = class_of(bytes);
    if (c >= kClasses)
        return nullptr;
    const u64 size = u64{1} << (c + kSmallest);
    if (FreeBlock* block = free_blocks[c]) {
        free_blocks[c] = block->next;
        return block;
    }
    const u64 align = size < 4096 ? size : 4096;
    const u64 at = (heap_used + align - 1) & ~(align - 1);
    if (at + size > layout::kKernelHeapBytes)
        return nullptr;
    heap_used = at + size;
    return gk_heap + at;
}

void* allocate(u64 bytes) {
    const u64 used = heap_used;
    void* block = allocate_dirty(bytes);
    if (block && heap_used == used) // a block that was never used before is zero
        memset(block, 0, bytes);
    return block;
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
