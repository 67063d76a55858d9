// The memory of a quiescent machine: an immutable memfd that many machines map copy-on-write. Parts of it may lie in
// files that other processes map as well: the host keeps such pages in memory only once.
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

enum class FramePresence {
    absent, // its bytes are not in the image yet
    hole,   // all zero: there was nothing to load
    loaded,
};

// Loads frames of an image on first use while it is being restored. Thread-safe.
class ImageLoader {
public:
    virtual ~ImageLoader() = default;
    // Returns when the frame's bytes are in the image. Throws UserError(bad_snapshot) when they cannot be loaded.
    virtual void load(std::uint32_t frame) = 0;
    virtual FramePresence presence(std::uint32_t frame) const = 0;
    // From now on these frames count as loaded, and their bytes are left alone. Not while anything is being loaded.
    virtual void leave_out(std::uint32_t first, std::uint32_t count) = 0;
};

inline constexpr int kMadvPopulateRead = 22, kMadvPopulateWrite = 23; // linux/mman.h since 5.14

// Frames [first, first + count) of an image lie in a file, from `offset` on.
struct ImagePart {
    UniqueFd file;
    std::uint64_t offset;
    std::uint32_t first, count;
};

// Prefaulted memory for the beginning of an image that will be created.
struct ImageMemory {
    UniqueFd memfd;
    Mapping view;
    // Throws HostError. Empty when the kernel cannot prefault (before 5.14).
    static ImageMemory prepare(std::uint64_t bytes);
};

class Image {
public:
    // An image of `frames` frames in an existing memfd.
    Image(UniqueFd memfd, std::uint32_t frames);
    // An empty image of `frames` zero pages, to be filled.
    static std::shared_ptr<Image> create(std::uint32_t frames, ImageMemory prepared = {});

    // Fill frames while the image is being restored. Different threads may fill different frames. The second function
    // reads them from a file; it returns false when it could not read all of them.
    void fill(std::uint32_t first, std::span<const std::byte> pages);
    bool fill(std::uint32_t first, std::uint32_t count, int file, std::uint64_t offset);
    // Appends zero frames. Only while the image is being restored, and if no existing clone will be used again.
    void grow(std::uint32_t count);
    // Replaces the bytes of frames from `first` on, whatever the loader has for them. Same conditions as grow(), and
    // nothing may be loading. A hole of the loader is still one for is_hole().
    void replace(std::uint32_t first, std::span<const std::byte> pages);
    // The same with pages that are not behind one another, each of kPageSize bytes.
    void replace(std::uint32_t first, std::span<const std::byte* const> pages);
    // Frees the prefaulted memory from frame `first` on, and of frames before it that are not loaded yet. Nothing may
    // have been filled there, nothing may be loading, and there may be no clones.
    void give_back_prepared(std::uint32_t first);
    // Frees what was prefaulted where a part is now, and for frames that are holes and still zero. Clones may run and
    // chunks may be loading, but nothing may write to holes meanwhile.
    void give_back_unused();

    int fd() const { return memfd_.get(); }
    std::uint32_t frames() const { return frames_; }
    // A mapping of the image itself, to read pristine pages. Written to only while restoring, and never in parts.
    std::byte* data() const { return view_.data(); }
    std::span<std::byte> bytes() const { return view_.bytes(); }

    void set_loader(std::shared_ptr<ImageLoader> loader) { loader_ = std::move(loader); }
    // Sets the large pages that the image's page tables map. Call this before any clone is made.
    void set_large(std::unique_ptr<LargePages> large) { large_ = std::move(large); }
    // The opposite, while there are no clones. Null: there were none.
    std::unique_ptr<LargePages> take_large() { return std::move(large_); }
    const LargePages* large() const { return large_.get(); }
    // Call this before any clone is made, if the image's first `most` bytes are to be in huge pages of the host.
    void want_huge_pages(std::uint64_t most);
    std::uint64_t huge_bytes() const { return huge_bytes_; }
    // Moves them there, once they are loaded. Parts stay in their files. Returns how many bytes are in huge pages.
    // Thread-safe. Clones may run.
    std::uint64_t use_huge_pages() const;
    // Whether fd() holds all of it: the image was never loaded from elsewhere.
    bool is_whole() const { return !loader_; }
    // While the image may still be loading, call ensure() or check loaded() before reading the bytes of a frame.
    FramePresence presence(std::uint32_t frame) const {
        return loader_ ? loader_->presence(frame) : FramePresence::loaded;
    }
    bool is_hole(std::uint32_t frame) const { return presence(frame) == FramePresence::hole; }
    bool loaded(std::uint32_t frame) const { return presence(frame) != FramePresence::absent; }
    void ensure(std::uint32_t frame) const {
        if (!loaded(frame))
            loader_->load(frame);
    }

    // Registers a private mapping of fd() at `memory`. While the attachment lives, that mapping gets the image's parts,
    // present and future ones. Thread-safe.
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
        const Image* image_ = nullptr; // must outlive this object
        std::byte* memory_ = nullptr;
    };
    Attachment attach(std::byte* memory) const;
    // Call this before anything reads or writes the frames of the part. The file's pages must never change.
    // Thread-safe. Throws HostError, also when there are kMaxParts already (each part is a mapping in every machine).
    // Some attached mappings may then have the part, and the others the content of the memfd.
    static constexpr std::size_t kMaxParts = 128;
    void add_part(ImagePart part);
    // Puts a part in place of frames that are loaded and hold the same bytes, and frees their memory. False, and
    // nothing has changed: there are clones, or half of kMaxParts parts. Thread-safe. Throws HostError.
    bool exchange(ImagePart part);
    std::vector<bool> in_parts() const; // by frame: whether it is in a part. Thread-safe.

private:
    Image(UniqueFd memfd, std::uint32_t frames, Mapping view, std::uint32_t prepared);
    void punch(std::uint32_t first, std::uint32_t count) const;
    // Prefaulted frames for which it is true.
    void punch_all(const std::function<bool(std::uint32_t frame)>& unused) const;
    void take_in(const ImagePart& part);
    void check(const ImagePart& part) const;
    void keep(ImagePart part);
    void make_room(std::uint32_t first, std::uint32_t end);

    UniqueFd memfd_;
    std::uint32_t frames_;
    Mapping view_;
    std::uint32_t prepared_ = 0; // number of leading frames that are prefaulted
    std::shared_ptr<ImageLoader> loader_;
    std::unique_ptr<LargePages> large_;
    std::uint64_t huge_bytes_ = 0; // a multiple of kHugePageBytes
    mutable std::mutex mutex_;     // guards what follows
    std::vector<ImagePart> parts_;
    mutable std::vector<std::byte*> attached_;
};

} // namespace tinykvm
