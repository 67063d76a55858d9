// Contents of the machine's own files: extents in the file area, and a bitmap of the pages that were written.
//
// Invariant: the bytes of an extent beyond its file's size are zero, and so are free extents.
#include "tinykvm/guest/own_files.hpp"

namespace gk::own {
namespace {

enum Nr : u32 { kFtruncate = 77, kFallocate = 285, kPreadv = 295, kPwritev = 296, kMemfdCreate = 319 };
constexpr u32 kClasses = 24;      // extents of 4 KiB to 32 GiB
constexpr u64 kZeroedHere = 32;   // up to this many pages are zeroed in place; the host frees larger numbers
constexpr u64 kMovedAtOnce = 256; // pages copied in one step when a file moves to a larger extent
constexpr u64 kMaxNodes = 1 << 17;

struct FreeExtent {
    FreeExtent* next;
    u64 at;
};
FreeExtent* free_extents[kClasses];
u64 area_used;
u64 pages_used, nodes_used;
u64 pages_before, generation_seen; // pages in the image: Shared::own_room comes on top of that

u32 class_of(u64 bytes) {
    u32 c = 0;
    while ((kPage << c) < bytes)
        ++c;
    return c;
}

u64 take_extent(u32 c) {
    if (FreeExtent* e = free_extents[c]) {
        free_extents[c] = e->next;
        const u64 at = e->at;
        destroy(e);
        return at;
    }
    const u64 size = kPage << c;
    if (size > layout::kFileAreaBytes - area_used)
        return 0;
    const u64 at = layout::kFileArea + area_used;
    area_used += size;
    return at;
}

void give_extent(u64 at, u32 c) {
    if (auto* e = make<FreeExtent>()) { // without memory only the address range is lost
        *e = {free_extents[c], at};
        free_extents[c] = e;
    }
}

void zero_pages(Node* n, u64 first, u64 end) { // of the extent
    u64 count = 0;
    for (u64 page = first; page < end; ++page)
        count += holds(n, page);
    if (count > kZeroedHere) {
        host_call(abi::kDropOwnPages, n->content.data + first * kPage, (end - first) * kPage);
    } else {
        for (u64 page = first; page < end; ++page)
            if (holds(n, page))
                memset(reinterpret_cast<void*>(n->content.data + page * kPage), 0, kPage);
    }
    for (u64 page = first; page < end; ++page)
        if (holds(n, page)) {
            n->held[page / 64] &= ~(u64{1} << (page % 64));
            --n->pages;
            --pages_used;
        }
}

i64 at_host(const Node* n, u32 nr, Cursor& c, u64 offset) {
    const i64 moved = host_call(nr, static_cast<u64>(n->handle), address(c.vec), c.count, offset);
    if (moved > 0)
        c.advance(static_cast<u64>(moved) < c.left ? static_cast<u64>(moved) : c.left);
    return moved;
}

u64 words_for(u64 room) { return (room / kPage + 63) / 64; }

} // namespace

Usage usage() {
    if (generation_seen != gk_shared_page.generation) {
        generation_seen = gk_shared_page.generation;
        pages_before = pages_used;
    }
    return {pages_used, pages_before + gk_shared_page.own_room / kPage, nodes_used, kMaxNodes};
}

bool count_node() { return nodes_used < kMaxNodes && ++nodes_used; }
void uncount_node() { --nodes_used; }

bool holds(const Node* n, u64 page) {
    return n->held && page < n->room / kPage && (n->held[page / 64] >> (page % 64) & 1);
}

i64 make_room(Node* n, u64 bytes) {
    if (bytes <= n->room)
        return 0;
    if (bytes > kPage << (kClasses - 1))
        return -EFBIG;
    const u32 c = class_of(bytes);
    const u64 room = kPage << c;
    const u64 at = take_extent(c);
    if (!at)
        return -ENOSPC;
    u64* held = static_cast<u64*>(allocate(words_for(room) * 8));
    if (!held) {
        give_extent(at, c);
        return -ENOSPC;
    }
    const u64 before = n->room;
    if (before) {
        memcpy(held, n->held, words_for(before) * 8);
        const u64 pages = n->pages;
        // In steps, so that the whole content never exists twice.
        for (u64 first = 0; first < before / kPage; first += kMovedAtOnce) {
            const u64 end = first + kMovedAtOnce < before / kPage ? first + kMovedAtOnce : before / kPage;
            for (u64 page = first; page < end; ++page)
                if (holds(n, page))
                    memcpy(reinterpret_cast<void*>(at + page * kPage),
                           reinterpret_cast<void*>(n->content.data + page * kPage), kPage);
            zero_pages(n, first, end);
        }
        n->pages = pages;
        pages_used += pages;
        give_extent(n->content.data, class_of(before));
        release(n->held, words_for(before) * 8);
    }
    n->content.data = at;
    n->room = room;
    n->held = held;
    return 0;
}

i64 hold(Node* n, u64 from, u64 to) {
    const Usage u = usage();
    for (u64 page = from / kPage; page < (to + kPage - 1) / kPage; ++page) {
        if (holds(n, page))
            continue;
        if (pages_used >= u.max_pages)
            return -ENOSPC;
        n->held[page / 64] |= u64{1} << (page % 64);
        ++n->pages;
        ++pages_used;
    }
    return 0;
}

void punch(Node* n, u64 from, u64 to) {
    if (n->handle >= 0) {
        constexpr u64 kPunchHole = 3; // FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
        host_call(kFallocate, static_cast<u64>(n->handle), kPunchHole, from, to - from);
        return;
    }
    to = to < n->room ? to : n->room;
    if (from >= to)
        return;
    const u64 first = (from + kPage - 1) / kPage, end = to / kPage;
    const auto clear = [&](u64 begin, u64 stop) { // within a page
        if (begin < stop && holds(n, begin / kPage))
            memset(reinterpret_cast<void*>(n->content.data + begin), 0, stop - begin);
    };
    if (first > end) { // both within one page
        clear(from, to);
        return;
    }
    clear(from, first * kPage);
    clear(end * kPage, to);
    if (first < end)
        zero_pages(n, first, end);
}

i64 set_size(Node* n, u64 bytes) {
    if (n->handle >= 0) {
        const i64 error = host_call(kFtruncate, static_cast<u64>(n->handle), bytes);
        if (error == 0)
            n->content.size = bytes;
        return error;
    }
    if (bytes < n->content.size) {
        const u64 before = n->content.size;
        n->content.size = bytes;
        punch(n, bytes, (before + kPage - 1) & ~(kPage - 1));
    }
    n->content.size = bytes;
    return 0;
}

i64 move_to_host(Node* n) {
    if (n->handle >= 0)
        return 0;
    static const char name[] = "own";
    abi::OpenReply reply{};
    const i64 handle = host_call(kMemfdCreate, address(name), 0, address(&reply));
    if (handle < 0)
        return handle;
    i64 error = host_call(kFtruncate, static_cast<u64>(handle), n->content.size);
    for (u64 page = 0; error >= 0 && page * kPage < n->content.size; ++page)
        if (holds(n, page)) {
            const u64 left = n->content.size - page * kPage;
            const IoVec v{n->content.data + page * kPage, left < kPage ? left : kPage};
            error = host_call(kPwritev, static_cast<u64>(handle), address(&v), 1, page * kPage);
        }
    if (error < 0) {
        host_call(abi::kCloseHandle, static_cast<u64>(handle));
        return error;
    }
    const u64 size = n->content.size;
    drop_content(n);
    n->content.size = size;
    n->handle = static_cast<i32>(handle);
    return 0;
}

void drop_content(Node* n) {
    if (n->handle >= 0) {
        host_call(abi::kCloseHandle, static_cast<u64>(n->handle));
        n->handle = abi::kNoHandle;
    }
    if (!n->room)
        return;
    zero_pages(n, 0, n->room / kPage);
    give_extent(n->content.data, class_of(n->room));
    release(n->held, words_for(n->room) * 8);
    n->content.data = n->content.size = 0;
    n->room = 0;
    n->held = nullptr;
}

void content_changed(Node* n) {
    n->modified = n->changed = now_real();
    drop_set_ids_on_write(n);
}

i64 read_at(Node* n, Cursor& c, u64 offset) {
    static const u8 zeros[kPage] = {};
    const u64 size = n->content.size;
    if (n->handle >= 0)
        return at_host(n, kPreadv, c, offset);
    u64 done = 0;
    while (c.left > 0 && offset < size) {
        const u64 page = offset / kPage;
        const bool data = holds(n, page);
        u64 end = (page + 1) * kPage;
        while (data && end < size && end - offset < c.left && holds(n, end / kPage))
            end += kPage;
        u64 bytes = (end < size ? end : size) - offset;
        bytes = bytes < c.left ? bytes : c.left;
        const i64 moved = c.put(data ? reinterpret_cast<const u8*>(n->content.data + offset) : zeros, bytes);
        if (moved <= 0)
            return done ? static_cast<i64>(done) : moved;
        done += static_cast<u64>(moved);
        offset += static_cast<u64>(moved);
        if (static_cast<u64>(moved) < bytes)
            break;
    }
    return static_cast<i64>(done);
}

i64 write_at(Node* n, Cursor& c, u64 offset) {
    if (c.left == 0)
        return 0;
    u64 end;
    if (__builtin_add_overflow(offset, c.left, &end) || end > static_cast<u64>(INT64_MAX))
        return -EFBIG;
    if (n->handle >= 0) {
        const i64 moved = at_host(n, kPwritev, c, offset);
        if (moved > 0 && offset + static_cast<u64>(moved) > n->content.size)
            n->content.size = offset + static_cast<u64>(moved);
        if (moved > 0)
            content_changed(n);
        return moved;
    }
    const Usage u = usage();
    i64 error = end > n->room && u.pages >= u.max_pages ? -ENOSPC : make_room(n, end);
    if (error == 0)
        error = hold(n, offset, end);
    u64 bytes = c.left;
    if (error == -ENOSPC) { // write as much as fits
        while (bytes > 0 && !(end <= n->room && holds(n, (end - 1) / kPage))) {
            const u64 cut = (end - 1) & ~(kPage - 1);
            end = cut > offset ? cut : offset;
            bytes = end - offset;
        }
    }
    if (bytes == 0 || (error < 0 && error != -ENOSPC))
        return error;
    const i64 moved = c.get(reinterpret_cast<void*>(n->content.data + offset), bytes);
    if (moved <= 0)
        return moved;
    if (offset + static_cast<u64>(moved) > n->content.size)
        n->content.size = offset + static_cast<u64>(moved);
    content_changed(n);
    return moved;
}

} // namespace gk::own
