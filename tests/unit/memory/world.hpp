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

} // namespace tinykvm::test
