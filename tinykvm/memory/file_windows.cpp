#include "tinykvm/memory/file_windows.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

namespace tinykvm {

Frame FileWindows::find(const FileBacking& file, std::uint64_t offset) const {
    const std::uint64_t begin = offset & ~(kBytes - 1);
    for (std::uint32_t i = 0; i < windows_.size(); ++i)
        if (windows_[i].file.get() == &file && windows_[i].offset == begin)
            return ram_->window_frame(i) + static_cast<Frame>((offset - begin) / kPageSize);
    return 0;
}

bool FileWindows::has(const FileBacking& file) const {
    return std::any_of(windows_.begin(), windows_.end(),
                       [&](const Window& window) { return window.file.get() == &file; });
}

Frame FileWindows::frame(const std::shared_ptr<const FileBacking>& file, int fd, std::uint64_t offset,
                         const Leave& leave, int& error) {
    const std::uint64_t begin = offset & ~(kBytes - 1);
    const auto in_page = static_cast<Frame>((offset - begin) / kPageSize);
    const auto use = [&](std::uint32_t window) {
        windows_[window].call = call_;
        windows_[window].touched = true;
        return ram_->window_frame(window) + in_page;
    };
    for (std::uint32_t i = 0; i < windows_.size(); ++i)
        if (windows_[i].file == file && windows_[i].offset == begin)
            return use(i);
    const std::uint32_t at = place(leave);
    if (at == GuestRam::kMaxWindows) {
        error = ENOMEM;
        return 0;
    }
    const bool shared = shared_ || file->memory, write = file->writable || !shared;
    error = ram_->open_window(at, fd, begin, PROT_READ | (write ? PROT_WRITE : 0), shared);
    if (error != 0)
        return 0;
    windows_[at].file = file;
    windows_[at].offset = begin;
    ++used_;
    return use(at);
}

std::uint32_t FileWindows::place(const Leave& leave) {
    if (used_ < windows_.size())
        for (std::uint32_t i = 0; i < windows_.size(); ++i)
            if (!windows_[i].file)
                return i;
    if (windows_.size() < GuestRam::kMaxWindows) {
        windows_.emplace_back();
        return static_cast<std::uint32_t>(windows_.size() - 1);
    }
    for (std::uint32_t tried = 0; tried < GuestRam::kMaxWindows; ++tried) {
        const std::uint32_t at = next_++ % GuestRam::kMaxWindows;
        if (windows_[at].call == call_)
            continue;
        leave(*windows_[at].file, windows_[at].offset);
        close(at);
        return at;
    }
    return GuestRam::kMaxWindows;
}

void FileWindows::close(std::uint32_t window) {
    ram_->close_window(window);
    windows_[window] = {};
    --used_;
}

void FileWindows::forget(const FileBacking& file) {
    for (std::uint32_t i = 0; i < windows_.size(); ++i)
        if (windows_[i].file.get() == &file)
            close(i);
}

void FileWindows::reset(const std::function<bool(const FileBacking&)>& keep) {
    for (std::uint32_t i = 0; i < windows_.size(); ++i) {
        Window& window = windows_[i];
        if (!window.file)
            continue;
        if (!shared_ || !keep(*window.file)) {
            close(i);
        } else if (window.touched) {
            ram_->drop_translations(ram_->window_frame(i), GuestRam::kWindowFrames);
            window.touched = false;
        }
    }
}

void FileWindows::clear() {
    for (std::uint32_t i = 0; i < windows_.size(); ++i)
        if (windows_[i].file)
            close(i);
}

} // namespace tinykvm
