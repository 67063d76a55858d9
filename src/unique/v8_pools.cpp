// Pools of random bytes that modules of Node and npm packages keep in JavaScript. Each is a buffer and a variable that
// counts its used bytes. That variable is set to "all of it", so that the next draw refills the pool (from OpenSSL,
// which notices the new PID).
#include "src/unique/v8_pools.hpp"

#include "src/unique/random_bytes.hpp"
#include "src/unique/random_pools.hpp"
#include "src/unique/v8_scopes.hpp"

namespace kvmserver::unique {

using tinykvm::GuestVirt;

namespace {

// `used` is a variable in the scope of the typed array `pool`.
struct Pool {
    std::string_view used, pool;
    std::int32_t bytes;      // of the pool; 0: any number
    std::int32_t used_up;    // value of `used` for an empty pool
    std::string_view beside; // another variable of the same scope, to tell common names apart
    std::string_view source;
};

constexpr std::int32_t kMore = 1 << 29; // more than any pool holds: these modules only test "used + wanted > length"

constexpr Pool kPools[] = {
    // lib/internal/crypto/random.js of Node 16 to 26
    {"uuidBatch", "uuidData", 2048, 0, "uuidNotBuffered", "Node crypto.randomUUID"},
    {"randomCacheOffset", "randomCache", 6144, 6144, "asyncCacheFillInProgress", "Node crypto.randomInt"},
    // nanoid 3 to 5, index.js
    {"poolOffset", "pool", 0, kMore, "fillPool", "npm nanoid"},
    // uuid 8 to 11, rng.js
    {"poolPtr", "rnds8Pool", 256, 256, "rnds8Pool", "npm uuid"},
};

template <class Word>
bool pool_there(const v8::Scope<Word>& scope, const Pool& pool) {
    const auto buffer = scope.object(pool.pool);
    if (!buffer || !scope.at(pool.beside))
        return false;
    return pool.bytes == 0 ? scope.heap.has_map(*buffer)
                           : scope.heap.typed_array(*buffer, static_cast<std::uint64_t>(pool.bytes));
}

// Whether an object is a Uint8Array of random bytes (outside V8's heap) of which `used` may be used. uuid's has 256
// bytes, nanoid's has room for 128 ids.
template <class Word>
bool is_random_pool(const v8::Heap<Word>& heap, GuestVirt at, std::int32_t used, int portion) {
    const std::uint64_t least = portion ? static_cast<std::uint64_t>(portion) : 128, most = portion ? 4096 : 32768;
    if (used < 0 || !heap.has_map(at) || (portion && used % portion != 0))
        return false;
    const auto raw = [&](std::uint64_t from) {
        return heap.memory.template value<std::uint64_t>(at + from).value_or(0);
    };
    for (std::uint64_t from = 3 * heap.kSlot; from <= 9 * 8; from += heap.kSlot) {
        const std::uint64_t bytes = raw(from);
        if (bytes < 64 || bytes > most || bytes % least != 0 || static_cast<std::uint64_t>(used) > bytes)
            continue;
        for (std::uint64_t data = 3 * heap.kSlot; data <= 9 * 8; data += heap.kSlot)
            if (const auto contents = heap.memory.bytes(GuestVirt(raw(data)), bytes);
                !contents.empty() && may_be_random_bytes(contents))
                return true;
    }
    return false;
}

// Adds `used` of a pool that a script's code describes. Minified names are short: if several scopes match, one may
// belong to something else, so none is added.
template <class Word>
void add_by_code(const std::vector<v8::Scope<Word>>& scopes, const PoolNames& pool, Findings& findings) {
    std::vector<GuestVirt> found;
    for (const v8::Scope<Word>& scope : scopes) {
        const auto used = scope.small(pool.used);
        const auto buffer = scope.object(pool.pool);
        if (used && buffer && is_random_pool(scope.heap, *buffer, *used, pool.portion))
            found.push_back(*scope.at(pool.used));
    }
    constexpr std::size_t kShort = 2;
    if (found.size() > 1 && pool.used.size() <= kShort && pool.pool.size() <= kShort)
        return;
    const Word value = v8::Heap<Word>::to_smi(kMore);
    for (const GuestVirt at : found)
        findings.add_constant(at, std::as_bytes(std::span(&value, 1)),
                              "pool of random bytes, variables " + pool.pool + " and " + pool.used);
}

// 6 bytes, the node of version-1 UUIDs: two clones that read the clock in the same millisecond would produce the same
// UUID. The first byte is kept, for its bit that says "random".
template <class Word>
void add_node_id(const v8::Heap<Word>& heap, GuestVirt array, Findings& findings) {
    if (!heap.typed_array(array, 6))
        return;
    const auto elements = heap.follow(array, 2); // a small array keeps its bytes in the heap
    if (elements && heap.has_map(*elements) && heap.has_length(*elements, 6))
        findings.add_random(*elements + (2 * v8::Heap<Word>::kSlot + 1), 5, "npm uuid, node of version 1");
}

// Deno 2.9 draws 128 UUIDs at once as one string (ext/crypto/00_crypto.js). Names are minified there, so this looks for
// the neighbouring slots themselves: [36, length of a UUID][128, their number][the string][number used].
template <class Word>
void find_deno_uuids(const MemoryView& memory, Findings& findings) {
    using Heap = v8::Heap<Word>;
    constexpr std::int32_t kLength = 36, kCount = 128;
    const Heap heap{memory};
    const auto is_batch = [&](GuestVirt string) {
        const auto length = memory.value<std::uint32_t>(string + (Heap::kStringHeader - 4));
        if (length != static_cast<std::uint32_t>(kLength * kCount) || !heap.has_map(string))
            return false;
        const auto text = memory.bytes(string + Heap::kStringHeader, kLength * kCount);
        for (std::size_t at = 0; at < text.size(); at += kLength)
            for (const std::size_t dash : {8, 13, 18, 23})
                if (text[at + dash] != std::byte{'-'})
                    return false;
        return !text.empty();
    };
    for (const Written& run : memory.written()) {
        const std::span words(reinterpret_cast<const Word*>(run.bytes.data()), run.bytes.size() / sizeof(Word));
        for (std::size_t i = 0; i + 3 < words.size(); ++i) {
            if (words[i] != Heap::to_smi(kLength) || words[i + 1] != Heap::to_smi(kCount) ||
                !Heap::is_pointer(words[i + 2]) || !Heap::is_smi(words[i + 3]) || words[i + 3] > Heap::to_smi(kCount))
                continue;
            const GuestVirt at = run.begin + i * sizeof(Word);
            const Word used_up = Heap::to_smi(kCount);
            if (is_batch(Heap::object(words[i + 2], at)))
                findings.add_constant(at + 3 * sizeof(Word), std::as_bytes(std::span(&used_up, 1)),
                                      "Deno crypto.randomUUID");
        }
    }
}

} // namespace

template <std::unsigned_integral Word>
void v8::find_pools(const MemoryView& memory, Findings& findings) {
    find_deno_uuids<Word>(memory, findings);
    const std::vector<PoolNames> by_code = pools_in_scripts(memory);
    std::vector<NamesTogether> names{{"v1Bytes", "_state"}, {"PROCESS_UNIQUE"}};
    for (const Pool& pool : kPools)
        names.push_back({pool.used, pool.pool, pool.beside});
    for (const PoolNames& pool : by_code)
        names.push_back({pool.used, pool.pool});
    const std::vector<v8::Scope<Word>> scopes = v8::scopes_with<Word>(memory, names);
    for (const v8::Scope<Word>& scope : scopes) {
        for (const Pool& pool : kPools) {
            const auto used = scope.small(pool.used);
            if (!used || *used < 0 || !pool_there(scope, pool))
                continue;
            const Word value = Heap<Word>::to_smi(pool.used_up);
            findings.add_constant(*scope.at(pool.used), std::as_bytes(std::span(&value, 1)), std::string(pool.source));
        }
        if (const auto state = scope.at("v1Bytes") ? scope.object("_state") : std::nullopt) // uuid 10 and 11, v1.js
            for (int i = 3; i < 8; ++i)
                if (const auto node = scope.heap.follow(*state, i))
                    add_node_id(scope.heap, *node, findings);
        // bson: the part of an ObjectId that differs between processes.
        if (const auto unique = scope.object("PROCESS_UNIQUE")) {
            const auto elements = scope.heap.typed_array(*unique, 5) ? scope.heap.follow(*unique, 2) : std::nullopt;
            if (elements && scope.heap.has_map(*elements) && scope.heap.has_length(*elements, 5))
                findings.add_random(*elements + 2 * Heap<Word>::kSlot, 5, "npm bson, ObjectId of this process");
        }
    }
    for (const PoolNames& pool : by_code)
        add_by_code(scopes, pool, findings);
}

template void v8::find_pools<std::uint64_t>(const MemoryView&, Findings&);
template void v8::find_pools<std::uint32_t>(const MemoryView&, Findings&);

} // namespace kvmserver::unique
