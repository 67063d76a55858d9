#include "tinykvm/memory/image.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <span>
#include <stdexcept>
#include <utility>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/read.hpp"
#include "tinykvm/base/zero.hpp"
#include "tinykvm/memory/huge_pages.hpp"

namespace tinykvm {
namespace {

void map_part(std::byte* memory, const ImagePart& part) {
    if (::mmap(memory + std::uint64_t{part.first} * kPageSize, std::size_t{part.count} * kPageSize,
               PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, part.file.get(),
               static_cast<off_t>(part.offset)) == MAP_FAILED)
        throw_errno("mmap a part of an image");
}

UniqueFd new_memfd() {
    UniqueFd fd(::memfd_create("kvmserver-image", MFD_CLOEXEC));
    if (!fd)
        throw_errno("memfd_create image");
    return fd;
}

// Copies bytes from one file to another. The data is copied only once, because the source's pages pass through a pipe
// by reference. False when it could not copy everything; the caller may write the whole range again.
bool splice_bytes(int from, std::uint64_t from_at, int to, std::uint64_t to_at, std::size_t bytes) {
    constexpr int kPipeBytes = 1 << 20; // maximum for a user who is not root (pipe(7))
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) < 0)
        return false;
    const UniqueFd out(ends[0]), in(ends[1]);
    (void)!::fcntl(in.get(), F_SETPIPE_SZ, kPipeBytes);
    auto source = static_cast<off64_t>(from_at), target = static_cast<off64_t>(to_at);
    while (bytes > 0) {
        ssize_t held = ::splice(from, &source, in.get(), nullptr, bytes, 0);
        if (held <= 0)
            return false;
        bytes -= static_cast<std::size_t>(held);
        while (held > 0) {
            const ssize_t n = ::splice(out.get(), nullptr, to, &target, static_cast<std::size_t>(held), 0);
            if (n <= 0)
                return false;
            held -= n;
        }
    }
    return true;
}

} // namespace

Image::Image(UniqueFd memfd, std::uint32_t frames)
    : memfd_(std::move(memfd)), frames_(frames),
      view_(Mapping::map(std::uint64_t{frames} * kPageSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                         memfd_.get(), 0, "image")) {}

Image::Image(UniqueFd memfd, std::uint32_t frames, Mapping view, std::uint32_t prepared)
    : memfd_(std::move(memfd)), frames_(frames), view_(std::move(view)), prepared_(prepared) {}

std::shared_ptr<Image> Image::create(std::uint32_t frames, ImageMemory prepared) {
    UniqueFd fd = prepared.memfd ? std::move(prepared.memfd) : new_memfd();
    const std::uint64_t bytes = std::uint64_t{frames} * kPageSize;
    if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) < 0)
        throw_errno("ftruncate image");
    if (prepared.view.size() == 0 || prepared.view.size() > bytes)
        return std::make_shared<Image>(std::move(fd), frames);
    const auto ready = static_cast<std::uint32_t>(prepared.view.size() / kPageSize);
    prepared.view.grow(bytes, "image");
    return std::shared_ptr<Image>(new Image(std::move(fd), frames, std::move(prepared.view), ready));
}

ImageMemory ImageMemory::prepare(std::uint64_t bytes) {
    ImageMemory memory{new_memfd(), {}};
    bytes = page_up(bytes);
    if (::ftruncate(memory.memfd.get(), static_cast<off_t>(bytes)) < 0)
        throw_errno("ftruncate image");
    memory.view =
        Mapping::map(bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory.memfd.get(), 0, "image");
    if (::madvise(memory.view.data(), bytes, kMadvPopulateWrite) < 0)
        return {};
    return memory;
}

void Image::fill(std::uint32_t first, std::span<const std::byte> pages) {
    const std::uint64_t at = std::uint64_t{first} * kPageSize;
    // For pages that are not prefaulted, pwrite is cheaper than a page fault each.
    if (first + pages.size() / kPageSize <= prepared_ ||
        ::pwrite(memfd_.get(), pages.data(), pages.size(), static_cast<off_t>(at)) !=
            static_cast<ssize_t>(pages.size()))
        std::memcpy(view_.data() + at, pages.data(), pages.size());
}

bool Image::fill(std::uint32_t first, std::uint32_t count, int file, std::uint64_t offset) {
    const std::size_t bytes = std::size_t{count} * kPageSize;
    const std::uint64_t at = std::uint64_t{first} * kPageSize;
    if (first + count <= prepared_)
        return read_at(file, offset, {view_.data() + at, bytes}) == bytes;
    if (std::array<std::byte, 4 * kPageSize> few; bytes <= few.size()) // fewer system calls than by a pipe
        return read_at(file, offset, std::span(few).first(bytes)) == bytes &&
               ::pwrite(memfd_.get(), few.data(), bytes, static_cast<off_t>(at)) == static_cast<ssize_t>(bytes);
    return splice_bytes(file, offset, memfd_.get(), at, bytes);
}

void Image::grow(std::uint32_t count) {
    const std::uint64_t bytes = (std::uint64_t{frames_} + count) * kPageSize;
    if (count == 0)
        return;
    if (::ftruncate(memfd_.get(), static_cast<off_t>(bytes)) < 0)
        throw_errno("ftruncate image");
    Mapping view = Mapping::map(bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memfd_.get(), 0, "image");
    const std::lock_guard lock(mutex_);
    for (const ImagePart& part : parts_)
        map_part(view.data(), part);
    view_ = std::move(view);
    frames_ += count;
}

// Moves the bytes of a part into the memfd.
void Image::take_in(const ImagePart& part) {
    const std::uint64_t at = std::uint64_t{part.first} * kPageSize;
    const std::size_t bytes = std::size_t{part.count} * kPageSize;
    if (::pwrite(memfd_.get(), view_.data() + at, bytes, static_cast<off_t>(at)) != static_cast<ssize_t>(bytes))
        throw_errno("write a part of an image");
    if (::mmap(view_.data() + at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, memfd_.get(),
               static_cast<off_t>(at)) == MAP_FAILED)
        throw_errno("mmap image");
}

// The frames [first, end) are this image's own from now on.
void Image::make_room(std::uint32_t first, std::uint32_t end) {
    if (loader_)
        loader_->leave_out(first, end - first);
    const std::lock_guard lock(mutex_);
    const auto touched = std::partition(parts_.begin(), parts_.end(), [&](const ImagePart& part) {
        return part.first >= end || part.first + part.count <= first;
    });
    std::for_each(touched, parts_.end(), [this](const ImagePart& part) { take_in(part); });
    parts_.erase(touched, parts_.end());
}

void Image::replace(std::uint32_t first, std::span<const std::byte> pages) {
    make_room(first, static_cast<std::uint32_t>(first + pages.size() / kPageSize));
    fill(first, pages);
}

void Image::replace(std::uint32_t first, std::span<const std::byte* const> pages) {
    make_room(first, static_cast<std::uint32_t>(first + pages.size()));
    std::vector<iovec> from;
    while (!pages.empty()) {
        const auto some = pages.first(std::min<std::size_t>(pages.size(), IOV_MAX));
        from.clear();
        for (const std::byte* const page : some)
            from.push_back({const_cast<std::byte*>(page), kPageSize});
        const std::size_t bytes = some.size() * kPageSize;
        const std::uint64_t at = std::uint64_t{first} * kPageSize;
        if (::pwritev(memfd_.get(), from.data(), static_cast<int>(from.size()), static_cast<off_t>(at)) !=
            static_cast<ssize_t>(bytes))
            for (std::size_t i = 0; i < some.size(); ++i)
                std::memcpy(view_.data() + at + i * kPageSize, some[i], kPageSize);
        first += static_cast<std::uint32_t>(some.size());
        pages = pages.subspan(some.size());
    }
}

void Image::want_huge_pages(std::uint64_t most) {
    huge_bytes_ = std::min(most, std::uint64_t{frames_} * kPageSize) & ~(kHugePageBytes - 1);
}

std::uint64_t Image::use_huge_pages() const {
    if (huge_bytes_ == 0)
        return 0;
    const Mapping view = Mapping::aligned(huge_bytes_, kHugePageBytes, "image");
    if (::mmap(view.data(), huge_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, memfd_.get(),
               0) == MAP_FAILED)
        throw_errno("mmap image");
    return collapse(view.data(), huge_bytes_);
}

void Image::punch(std::uint32_t first, std::uint32_t count) const {
    (void)!::fallocate(memfd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                       static_cast<off_t>(std::uint64_t{first} * kPageSize),
                       static_cast<off_t>(std::uint64_t{count} * kPageSize));
}

void Image::punch_all(const std::function<bool(std::uint32_t frame)>& unused) const {
    for (std::uint32_t first = 0, end; first < prepared_; first = end + 1) {
        for (end = first; end < prepared_ && unused(end);)
            ++end;
        if (end > first)
            punch(first, end - first);
    }
}

void Image::give_back_prepared(std::uint32_t first) {
    if (first < prepared_)
        punch(first, prepared_ - first);
    prepared_ = std::min(prepared_, first);
    punch_all([this](std::uint32_t frame) { return presence(frame) == FramePresence::absent; });
}

void Image::give_back_unused() {
    const std::lock_guard lock(mutex_);
    for (const ImagePart& part : parts_)
        if (part.first < prepared_)
            punch(part.first, part.count);
    // What was a hole for the loader may have been written to since.
    punch_all([this](std::uint32_t frame) {
        return is_hole(frame) && is_zero({data() + std::uint64_t{frame} * kPageSize, kPageSize});
    });
}

Image::Attachment::Attachment(Attachment&& other) noexcept
    : image_(std::exchange(other.image_, nullptr)), memory_(other.memory_) {}

Image::Attachment::~Attachment() {
    if (!image_)
        return;
    const std::lock_guard lock(image_->mutex_);
    std::erase(image_->attached_, memory_);
}

Image::Attachment Image::attach(std::byte* memory) const {
    const std::lock_guard lock(mutex_);
    for (const ImagePart& part : parts_)
        map_part(memory, part);
    attached_.push_back(memory);
    return {*this, memory};
}

void Image::check(const ImagePart& part) const {
    if (part.first > frames_ || part.count > frames_ - part.first)
        throw std::logic_error("a part beyond its image");
}

// Maps it into the image and all clones. Call with mutex_ held.
void Image::keep(ImagePart part) {
    parts_.reserve(parts_.size() + 1);
    for (std::byte* memory : attached_)
        map_part(memory, part);
    map_part(view_.data(), part);
    parts_.push_back(std::move(part));
}

void Image::add_part(ImagePart part) {
    check(part);
    const std::lock_guard lock(mutex_);
    if (parts_.size() == kMaxParts)
        throw HostError(ENOMEM, "map a part of an image");
    keep(std::move(part));
}

std::vector<bool> Image::in_parts() const {
    std::vector<bool> in(frames_);
    const std::lock_guard lock(mutex_);
    for (const ImagePart& part : parts_)
        std::fill_n(in.begin() + part.first, part.count, true);
    return in;
}

bool Image::exchange(ImagePart part) {
    check(part);
    const std::lock_guard lock(mutex_);
    if (!attached_.empty() || parts_.size() >= kMaxParts / 2)
        return false;
    const std::uint32_t first = part.first, count = part.count;
    keep(std::move(part));
    punch(first, count);
    return true;
}

} // namespace tinykvm
