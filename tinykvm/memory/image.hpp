// The memory of a quiescent machine: an immutable memfd that many machines map copy-on-write. Parts of it may
// lie in files instead, which other processes map as well: such pages are in the host's memory once.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tinykvm/base/guest_addr.hpp"
#include "tinykvm/base/mapping.hpp"
#include "tinykvm/base/unique_fd.hpp"
#include "tinykvm/memory/large_pages.hpp"

namespace tinykvm {

// Fills frames of an image that is being restored on first use. Thread-safe.
class ImageLoader {
public:
    virtual ~ImageLoader() = default;
    // Returns once the frame's bytes are in the image. Throws UserError(bad_snapshot) when they cannot be
    // had.
    virtual void load(std::uint32_t frame) = 0;
    virtual bool loaded(std::uint32_t frame) const = 0;
    virtual bool is_hole(std::uint32_t frame) const = 0; // zero: nothing to load
};

inline constexpr int kMadvPopulateRead = 22, kMadvPopulateWrite = 23; // linux/mman.h since 5.14

// Frames [first, first + count) of an image lie in a file, from `offset` on.
struct ImagePart {
    UniqueFd file;
    std::uint64_t offset;
    std::uint32_t first, count;
};

// Memory for the beginning of an image that is yet to come: its pages are there already.
struct ImageMemory {
    UniqueFd memfd;
    Mapping view;
    // Throws HostError. Of a kernel that cannot (before 5.14): none.
    static ImageMemory prepare(std::uint64_t bytes);
};

class Image {
public:
    Image(UniqueFd memfd, std::uint32_t frames);
    // An empty image of `frames` zero pages, to be filled.
    static std::shared_ptr<Image> create(std::uint32_t frames, ImageMemory prepared = {});

    // While it is restored; different frames by different threads at once. The second reads them from a file;
    // false when they cannot all be had that way.
    void fill(std::uint32_t first, std::span<const std::byte> pages);
    bool fill(std::uint32_t first, std::uint32_t count, int file, std::uint64_t offset);
    // While it is restored, and no clone is there that will still be used: so many zero frames more, behind the others.
    void grow(std::uint32_t count);
    // The same: a frame's bytes are these, whatever the loader has for it (which may be a hole, and stays one for
    // is_hole()). Throws what the loader does.
    void replace(std::uint32_t frame, std::span<const std::byte> page);
    // Gives back what was prepared from frame `first` on, where nothing has been filled yet.
    void give_back_prepared(std::uint32_t first);

    int fd() const { return memfd_.get(); }
    std::uint32_t frames() const { return frames_; }
    // A mapping of the image itself: reads of pristine pages; written only while restoring, and never where
    // parts are.
    std::byte* data() const { return view_.data(); }
    std::span<std::byte> bytes() const { return view_.bytes(); }

    void set_loader(std::shared_ptr<ImageLoader> loader) { loader_ = std::move(loader); }
    // What entries of the image's page tables map that are no frames of it. Before any clone is made.
    void set_large(std::unique_ptr<const LargePages> large) { large_ = std::move(large); }
    const LargePages* large() const { return large_.get(); }
    // Before anything looks at the bytes of a frame of an image that may still be filling.
    bool is_hole(std::uint32_t frame) const { return loader_ && loader_->is_hole(frame); }
    bool loaded(std::uint32_t frame) const { return !loader_ || loader_->loaded(frame); }
    void ensure(std::uint32_t frame) const {
        if (loader_ && !loader_->loaded(frame))
            loader_->load(frame);
    }

    // The image begins at `memory` as well, as a private mapping of fd(); for as long as the attachment lives
    // that gets the parts too, those that are there and those that come. Thread-safe.
    class Attachment {
    public:
        Attachment() = default;
        ~Attachment();
        Attachment(Attachment&& other) noexcept;
        Attachment& operator=(Attachment&& other) noexcept {
            std::swap(image_, other.image_);
            std::swap(memory_, other.memory_);
            return *this;
        }

    private:
        friend class Image;
        Attachment(const Image& image, std::byte* memory) : image_(&image), memory_(memory) {}
        const Image* image_ = nullptr; // outlives this
        std::byte* memory_ = nullptr;
    };
    Attachment attach(std::byte* memory) const;
    // Before anything has looked at the frames of the part, or written to them. The file's pages must never
    // change. Thread-safe. When it throws HostError, also because there are kMaxParts (each is a mapping of
    // every machine), some attached mappings may have the part, and all others what is in the memfd.
    static constexpr std::size_t kMaxParts = 128;
    void add_part(ImagePart part);

private:
    Image(UniqueFd memfd, std::uint32_t frames, Mapping view, std::uint32_t prepared);
    void take_in(const ImagePart& part);

    UniqueFd memfd_;
    std::uint32_t frames_;
    Mapping view_;
    std::uint32_t prepared_ = 0; // so many frames from the first on
    std::shared_ptr<ImageLoader> loader_;
    std::unique_ptr<const LargePages> large_;
    mutable std::mutex mutex_; // guards what follows
    std::vector<ImagePart> parts_;
    mutable std::vector<std::byte*> attached_;
};

} // namespace tinykvm
