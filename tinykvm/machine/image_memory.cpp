#include "tinykvm/machine/image_memory.hpp"

#include <algorithm>
#include <cstring>

#include "tinykvm/abi/layout.hpp"

namespace tinykvm {
namespace {

// The leaf entry; 0 when there is none. Tables of a hostile file may lead anywhere.
std::uint64_t leaf_of(const MachineImage& image, GuestVirt at) {
    const Image& memory = *image.image;
    std::uint64_t entry = image.root.value | pte::kPresent;
    for (int level = 3; level >= 0; --level) {
        const Frame table = pte::frame(entry);
        if (!pte::mapped(entry) || table >= memory.frames())
            return 0;
        memory.ensure(table);
        const std::uint64_t index = at.value >> (12 + 9 * level) & 511;
        std::memcpy(&entry, memory.data() + frame_address(table).value + index * sizeof(entry), sizeof(entry));
    }
    return pte::mapped(entry) && pte::frame(entry) < memory.frames() ? entry : 0;
}

} // namespace

bool read_image(const MachineImage& image, GuestVirt at, std::span<std::byte> to) {
    const Image& memory = *image.image;
    while (!to.empty()) {
        const std::uint64_t entry = leaf_of(image, at);
        if (entry == 0)
            return false;
        memory.ensure(pte::frame(entry));
        const std::size_t offset = at.value % kPageSize, n = std::min<std::size_t>(to.size(), kPageSize - offset);
        std::memcpy(to.data(), memory.data() + frame_address(pte::frame(entry)).value + offset, n);
        to = to.subspan(n);
        at = at + n;
    }
    return true;
}

std::optional<Frame> frame_in(const MachineImage& image, GuestVirt at) {
    const std::uint64_t entry = leaf_of(image, at);
    return entry == 0 ? std::nullopt : std::optional(pte::frame(entry));
}

bool is_callable(const MachineImage& image) {
    std::uint32_t state = abi::kNotReady;
    return read_image(image, GuestVirt(layout::kShared + offsetof(abi::Shared, function_call.state)),
                      std::as_writable_bytes(std::span(&state, 1))) &&
           state == abi::kCallable;
}

} // namespace tinykvm
