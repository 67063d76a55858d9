// Reads objects of V8's heap: Node, Deno and other programs that embed V8.
//
// Word is the type of a slot: 64 bits, or 32 bits with pointer compression, where the upper half of an address is that
// of the slot's own address. Nothing here depends on the numbers of maps or instance types, which differ between
// versions.
#pragma once
#include <bitset>
#include <concepts>

#include "src/unique/memory_view.hpp"

namespace kvmserver::unique::v8 {

template <std::unsigned_integral Word>
struct Heap {
    static constexpr std::uint64_t kSlot = sizeof(Word);
    static constexpr bool kCompressed = sizeof(Word) == 4;
    static constexpr std::uint64_t kStringHeader = kCompressed ? 12 : 16; // map, hash, length

    const MemoryView& memory;

    static constexpr bool is_smi(Word word) { return kCompressed ? (word & 1) == 0 : (word & 0xffffffff) == 0; }
    static constexpr std::int32_t smi(Word word) {
        return kCompressed ? static_cast<std::int32_t>(word) >> 1
                           : static_cast<std::int32_t>(static_cast<std::uint64_t>(word) >> 32);
    }
    static constexpr Word to_smi(std::int32_t value) {
        return kCompressed ? static_cast<Word>(value) << 1
                           : static_cast<Word>(static_cast<std::uint64_t>(static_cast<std::uint32_t>(value)) << 32);
    }
    static constexpr bool is_pointer(Word word) { return (word & 3) == 1 && word > 0xfff; }

    // The object to which `word`, a slot at `near`, points.
    static constexpr tinykvm::GuestVirt object(Word word, tinykvm::GuestVirt near) {
        return tinykvm::GuestVirt(kCompressed ? (near.value & ~0xffffffffull) + word - 1 : word - 1);
    }
    std::optional<Word> slot(tinykvm::GuestVirt at, std::int64_t index) const {
        return memory.value<Word>(at + static_cast<std::uint64_t>(index) * kSlot);
    }
    // The object to which a slot points; nullopt when it holds something else.
    std::optional<tinykvm::GuestVirt> follow(tinykvm::GuestVirt at, std::int64_t index = 0) const {
        const auto word = slot(at, index);
        if (!word || !is_pointer(*word))
            return std::nullopt;
        return object(*word, at);
    }
    std::optional<std::int32_t> small(tinykvm::GuestVirt at, std::int64_t index) const {
        const auto word = slot(at, index);
        if (!word || !is_smi(*word))
            return std::nullopt;
        return smi(*word);
    }
    // Whether an object's first slot points to a map. The map chain ends in a map that is its own map.
    bool has_map(tinykvm::GuestVirt at) const {
        const auto map = follow(at);
        const auto meta = map ? follow(*map) : std::nullopt;
        const auto last = meta ? follow(*meta) : std::nullopt;
        return last && (*last == *meta || follow(*last) == last);
    }
    // Whether an array or byte array has this length: a Smi or, since V8 15, a plain number.
    bool has_length(tinykvm::GuestVirt at, std::int32_t length) const {
        const auto word = slot(at, 1);
        return word && (*word == to_smi(length) || *word == static_cast<Word>(length));
    }
    // The text of a sequential one-byte string of 1 to 127 characters; "" for anything else.
    std::string_view string(tinykvm::GuestVirt at) const {
        const auto length = memory.value<std::uint32_t>(at + (kStringHeader - 4));
        if (!length || *length == 0 || *length > 127)
            return {};
        const auto text = memory.bytes(at + kStringHeader, *length);
        return {reinterpret_cast<const char*>(text.data()), text.size()};
    }
    // Whether an object may be a typed array of `bytes` bytes: one of the raw numbers after its first slots is its
    // length.
    bool typed_array(tinykvm::GuestVirt at, std::uint64_t bytes) const {
        if (!has_map(at))
            return false;
        for (std::uint64_t from = 3 * kSlot; from <= 9 * 8; from += kSlot)
            if (memory.value<std::uint64_t>(at + from) == bytes)
                return true;
        return false;
    }
};

// A set of pointers with fast negative lookups and false positives: compare what passes.
template <std::unsigned_integral Word>
class PointerFilter {
public:
    void insert(Word word) { bits_[key(word)] = true; }
    bool may_have(Word word) const { return (word & 3) == 1 && bits_[key(word)]; }

private:
    static std::size_t key(Word word) { return (word >> 2) & (kBits - 1); }
    static constexpr std::size_t kBits = 1 << 16;
    std::bitset<kBits> bits_;
};

using Heap64 = Heap<std::uint64_t>;
using Heap32 = Heap<std::uint32_t>;

} // namespace kvmserver::unique::v8
