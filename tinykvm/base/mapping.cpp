#include "tinykvm/base/mapping.hpp"

#include <sys/mman.h>

#include <utility>

#include "tinykvm/base/error.hpp"

namespace tinykvm {

Mapping Mapping::map(std::size_t bytes, int prot, int flags, int fd, std::uint64_t offset, const char* what) {
    void* at = ::mmap(nullptr, bytes, prot, flags, fd, static_cast<off_t>(offset));
    if (at == MAP_FAILED)
        throw_errno(std::string("mmap ") + what);
    return Mapping(static_cast<std::byte*>(at), bytes);
}

Mapping Mapping::map_in_front(std::size_t front, int fd, std::size_t bytes, const char* what) {
    constexpr int kProt = PROT_READ | PROT_WRITE, kPrivate = MAP_PRIVATE | MAP_NORESERVE;
    void* behind = ::mmap(nullptr, bytes - front, kProt, kPrivate | MAP_ANONYMOUS, -1, 0);
    if (behind == MAP_FAILED)
        throw_errno(std::string("mmap ") + what);
    auto* begin = static_cast<std::byte*>(behind) - front;
    void* at = ::mmap(begin, front, kProt, kPrivate | MAP_FIXED_NOREPLACE, fd, 0);
    if (at == begin)
        return Mapping(begin, bytes);
    if (at != MAP_FAILED)
        ::munmap(at, front);
    ::munmap(behind, bytes - front);
    Mapping whole = map(bytes, kProt, kPrivate | MAP_ANONYMOUS, -1, 0, what); // another mapping was in the way
    if (::mmap(whole.data(), front, kProt, kPrivate | MAP_FIXED, fd, 0) == MAP_FAILED)
        throw_errno(std::string("mmap ") + what);
    return whole;
}

Mapping Mapping::aligned(std::size_t bytes, std::size_t alignment, const char* what) {
    Mapping room =
        map(bytes + alignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0, what);
    const std::size_t before = -reinterpret_cast<std::uintptr_t>(room.data_) % alignment;
    if (before != 0)
        ::munmap(room.data_, before);
    room.data_ += before;
    room.size_ = bytes;
    ::munmap(room.data_ + bytes, alignment - before);
    return room;
}

void Mapping::grow(std::size_t bytes, const char* what) {
    void* at = ::mremap(data_, size_, bytes, MREMAP_MAYMOVE);
    if (at == MAP_FAILED)
        throw_errno(std::string("mremap ") + what);
    data_ = static_cast<std::byte*>(at);
    size_ = bytes;
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
    if (this != &other) {
        if (data_)
            ::munmap(data_, size_);
        data_ = std::exchange(other.data_, nullptr);
        size_ = std::exchange(other.size_, 0);
    }
    return *this;
}

Mapping::~Mapping() {
    if (data_)
        ::munmap(data_, size_);
}

} // namespace tinykvm
