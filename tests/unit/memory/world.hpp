// Guest memory for the tests, and files for it.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/memory/spaces.hpp"
#include "tinykvm/base/error.hpp"

namespace tinykvm::test {

// A file of `text` that only this process sees.
inline std::shared_ptr<const FileBacking> file_of(const std::string& text, const std::string& name = "/file") {
    UniqueFd fd(::memfd_create("test", MFD_CLOEXEC));
    REQUIRE(fd);
    REQUIRE(::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    return std::make_shared<FileBacking>(FileBacking{std::move(fd), name});
}

inline std::uint64_t load(AddressSpace& space, std::uint64_t at) {
    const auto value = space.load<std::uint64_t>(GuestVirt(at));
    REQUIRE(value);
    return *value;
}

inline bool all_zero(std::span<const std::byte> bytes) {
    return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

// Each frame is full of its number + 1 (1 again after 255).
inline std::shared_ptr<Image> image_of(std::uint32_t frames) {
    auto image = Image::create(frames);
    for (std::uint32_t f = 0; f < frames; ++f)
        std::memset(image->data() + f * kPageSize, static_cast<int>(f % 255 + 1), kPageSize);
    return image;
}

} // namespace tinykvm::test
