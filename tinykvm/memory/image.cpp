#include "tinykvm/memory/image.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include "tinykvm/base/error.hpp"

namespace tinykvm {

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

} // namespace tinykvm
