// getrandom(2) without an exit: ChaCha20 with a key that the host sets at boot and before every invocation. Each call
// replaces the key (fast key erasure), so that earlier output cannot be recomputed from memory.
#include "tinykvm/base/chacha20.hpp"
#include "tinykvm/guest/calls.hpp"

namespace gk {
namespace {

using tinykvm::ChaCha20State;

u32 key[8];
u32 generation_of_key = ~u32{0};

void renew_key() {
    const u32 now = gk_shared_page.generation;
    if (now == generation_of_key)
        return;
    generation_of_key = now;
    for (u32 i = 0; i < 8; ++i) {
        key[i] = gk_shared_page.seed[i];
        gk_shared_page.seed[i] = 0;
    }
}

} // namespace

i64 sys_getrandom(const Args& c) {
    constexpr u64 kMax = 2048; // the host is faster for more, and the guest kernel cannot be preempted meanwhile
    constexpr u32 kFlags = 7;  // GRND_NONBLOCK, GRND_RANDOM, GRND_INSECURE
    const u64 wanted = c.a[1];
    if (wanted > kMax || (static_cast<u32>(c.a[2]) & ~kFlags))
        return sys_host_call(c);
    renew_key();
    ChaCha20State state;
    for (u32 i = 0; i < 8; ++i)
        state.key()[i] = key[i];
    u32 block[16];
    chacha20_block(state, block);
    for (u32 i = 0; i < 8; ++i)
        key[i] = block[i]; // the first 8 words become the next key and are never output
    u32 used = 8;
    for (u64 done = 0; done < wanted; used = 0) {
        const u64 left = wanted - done, room = (16 - used) * sizeof(u32), part = left < room ? left : room;
        if (!copy_to_user(c.a[0] + done, block + used, part))
            return done ? static_cast<i64>(done) : -EFAULT;
        done += part;
        if (done < wanted)
            chacha20_block(state, block);
    }
    memset(block, 0, sizeof(block));
    memset(&state, 0, sizeof(state));
    return static_cast<i64>(wanted);
}

} // namespace gk
