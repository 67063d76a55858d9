// Move-only owner of one mmap'd range of this process.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace tinykvm {

class Mapping {
public:
    Mapping() = default;
    // Throws HostError naming `what` when mmap fails.
    static Mapping map(std::size_t bytes, int prot, int flags, int fd, std::uint64_t offset, const char* what);
    // A private mapping of a file's first `front` bytes followed by anonymous memory, `bytes` in all. If possible,
    // replaces no existing mapping, because each unmapping calls the MMU notifier of every VM in the process.
    static Mapping map_in_front(std::size_t front, int fd, std::size_t bytes, const char* what);
    // Anonymous memory at an address that is a multiple of `alignment` (a power of two), for others to map over.
    static Mapping aligned(std::size_t bytes, std::size_t alignment, const char* what);
    // Enlarges the mapping, which may move. Populated pages stay populated. Throws HostError.
    void grow(std::size_t bytes, const char* what);
    Mapping(Mapping&& other) noexcept;
    Mapping& operator=(Mapping&& other) noexcept;
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ~Mapping();

    std::byte* data() const { return data_; }
    std::size_t size() const { return size_; }
    std::span<std::byte> bytes() const { return {data_, size_}; }
    explicit operator bool() const { return data_ != nullptr; }

private:
    Mapping(std::byte* data, std::size_t size) : data_(data), size_(size) {}
    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
};

} // namespace tinykvm
