// The memory of a quiescent machine: an immutable memfd that many machines map copy-on-write.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "tinykvm/base/guest_addr.hpp"
#include "tinykvm/base/mapping.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace tinykvm {

// Fills frames of an image that is being restored on first use. Thread-safe.
class ImageLoader {
public:
    virtual ~ImageLoader() = default;
    // Returns once the frame's bytes are in the image. Throws UserError(bad_snapshot) when they cannot be had.
    virtual void load(std::uint32_t frame) = 0;
    virtual bool loaded(std::uint32_t frame) const = 0;
    virtual bool is_hole(std::uint32_t frame) const = 0; // zero: nothing to load
};

class Image {
public:
    Image(UniqueFd memfd, std::uint32_t frames);
    // An empty image of `frames` zero pages, to be filled.
    static std::shared_ptr<Image> create(std::uint32_t frames);

    int fd() const { return memfd_.get(); }
    std::uint32_t frames() const { return frames_; }
    // A shared mapping of the image itself: reads of pristine pages; written only while restoring.
    std::byte* data() const { return view_.data(); }
    std::span<std::byte> bytes() const { return view_.bytes(); }

    void set_loader(std::shared_ptr<ImageLoader> loader) { loader_ = std::move(loader); }
    // Before anything looks at the bytes of a frame of an image that may still be filling.
    bool is_hole(std::uint32_t frame) const { return loader_ && loader_->is_hole(frame); }
    bool loaded(std::uint32_t frame) const { return !loader_ || loader_->loaded(frame); }
    void ensure(std::uint32_t frame) const {
        if (loader_ && !loader_->loaded(frame))
            loader_->load(frame);
    }

private:
    UniqueFd memfd_;
    std::uint32_t frames_;
    Mapping view_;
    std::shared_ptr<ImageLoader> loader_;
};

} // namespace tinykvm
