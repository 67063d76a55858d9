#include "tinykvm/memory/image.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <stdexcept>
#include <utility>

#include "tinykvm/base/error.hpp"

namespace tinykvm {
namespace {

void map_part(std::byte* memory, const ImagePart& part, int prot) {
    if (::mmap(memory + std::uint64_t{part.first} * kPageSize, std::size_t{part.count} * kPageSize, prot,
               MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, part.file.get(), static_cast<off_t>(part.offset)) == MAP_FAILED)
        throw_errno("mmap a part of an image");
}

} // namespace

Image::Image(UniqueFd memfd, std::uint32_t frames)
    : memfd_(std::move(memfd)), frames_(frames),
      view_(Mapping::map(std::uint64_t{frames} * kPageSize, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                         memfd_.get(), 0, "image")) {}

std::shared_ptr<Image> Image::create(std::uint32_t frames) {
    UniqueFd fd(::memfd_create("kvmserver-image", MFD_CLOEXEC));
    if (!fd)
        throw_errno("memfd_create image");
    if (::ftruncate(fd.get(), static_cast<off_t>(std::uint64_t{frames} * kPageSize)) < 0)
        throw_errno("ftruncate image");
    return std::make_shared<Image>(std::move(fd), frames);
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
        map_part(memory, part, PROT_READ | PROT_WRITE);
    attached_.push_back(memory);
    return {*this, memory};
}

void Image::add_part(ImagePart part) {
    if (part.first > frames_ || part.count > frames_ - part.first)
        throw std::logic_error("Image::add_part: beyond the image");
    const std::lock_guard lock(mutex_);
    parts_.reserve(parts_.size() + 1);
    map_part(view_.data(), part, PROT_READ);
    for (std::byte* memory : attached_)
        map_part(memory, part, PROT_READ | PROT_WRITE);
    parts_.push_back(std::move(part));
}

} // namespace tinykvm
