#include "tinykvm/machine/working_set.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "tinykvm/memory/dirty_pages.hpp"

namespace tinykvm {
namespace {

long minor_faults() {
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_minflt + usage.ru_majflt; // a swapped-out page is a major fault
}

} // namespace

void WorkingSet::add_clean_copies(const FrameRun& frames) {
    clean_copies_.resize(ram_.image_frames());
    std::fill_n(clean_copies_.begin() + frames.first, frames.count, true);
}

void WorkingSet::add_clean_copies(std::vector<UnwrittenPage> pages) {
    clean_copies_.resize(ram_.image_frames());
    for (const UnwrittenPage& page : pages)
        clean_copies_[page.frame] = true;
    unwritten_ = std::move(pages);
    space_.track_host_writes(!unwritten_.empty());
}

void WorkingSet::never_clean(Frame frame) {
    if (is_clean(frame))
        clean_copies_[frame] = false;
}

// Makes a clean copy a page of the set, which is copied back after each invocation.
void WorkingSet::written(Frame frame) {
    if (!is_clean(frame))
        return;
    clean_copies_[frame] = false;
    minor_faults_seen_ = -1;
}

// Finds clean copies that the program, or the host on its behalf, has written to since the last reset, or that have
// moved to other addresses. From now on they are copied back like other pages. The page-table entries must still be as
// the invocation left them.
void WorkingSet::find_dirty() {
    std::erase_if(unwritten_, [&](const UnwrittenPage& page) {
        std::uint64_t entry;
        std::memcpy(&entry, ram_.host(page.entry_at), sizeof(entry));
        if (((entry ^ page.entry) & ~pte::kAccessed) == 0)
            return false;
        written(page.frame);
        return true;
    });
    for (const Frame frame : space_.take_host_dirty())
        written(frame);
}

std::uint64_t WorkingSet::copy_back() {
    shrink();
    for (const Frame frame : space_.take_made_writable())
        written(frame);
    ask_kernel();
    copy_pages(frames_);
    own_pages_ = frames_.size();
    give_back_clean_copies();
    return frames_.size();
}

// Updates frames_ if the thread had a page fault since the last call.
void WorkingSet::ask_kernel() {
    const long faults = minor_faults();
    if (faults == minor_faults_seen_)
        return;
    frames_ = private_pages(ram_.host(GuestPhys(0)), ram_.image_frames());
    std::erase_if(frames_, [&](Frame frame) { return is_clean(frame); });
    erase_tables(ram_, space_, frames_);
    minor_faults_seen_ = faults;
}

// Keeps one invocation that wrote a lot from making all later resets expensive. Every kEvery resets, the pages are
// compared with the image before they are copied back. Copies that equalled the image in two looks in a row go back to
// the kernel. At first only a few do: a program may write to a page and restore its content in every invocation
// (reference counts), and such a page then costs a new fault. If few come back, the number doubles at each look.
void WorkingSet::shrink() {
    constexpr unsigned kEvery = 64;
    constexpr std::size_t kWorthIt = 256; // pages; copying fewer is cheap compared with an exit
    constexpr std::size_t kFew = 64;
    if (++resets_since_look_ < kEvery || frames_.size() < kWorthIt)
        return;
    resets_since_look_ = 0;
    ++looks_;
    came_back_.resize(ram_.image_frames());
    std::size_t back = 0;
    for (const Frame frame : given_back_)
        if (std::binary_search(frames_.begin(), frames_.end(), frame)) {
            came_back_[frame] = static_cast<std::uint8_t>(std::min(came_back_[frame] + 1, 15));
            ++back;
        }
    give_back_ = given_back_.empty() || back * 4 > given_back_.size() ? kFew : give_back_ * 2;
    given_back_.clear();

    const std::byte* pristine = image_.data();
    std::vector<Frame> unchanged;
    for (const Frame frame : frames_)
        if (std::memcmp(ram_.host(frame_address(frame)), pristine + frame_address(frame).value, kPageSize) == 0)
            unchanged.push_back(frame);
    std::set_intersection(unchanged.begin(), unchanged.end(), unchanged_.begin(), unchanged_.end(),
                          std::back_inserter(given_back_));
    unchanged_ = std::move(unchanged);
    // A page that came back n times is tried at every 4^n-th look only.
    std::erase_if(given_back_, [&](Frame frame) { return looks_ % (1ull << (2 * came_back_[frame])) != 0; });
    given_back_.resize(std::min(given_back_.size(), give_back_));
    std::vector<FrameRun> runs;
    for (const Frame frame : given_back_)
        append_frame(runs, frame);
    drop_copies(ram_, runs, "unused copies");
    if (!runs.empty())
        minor_faults_seen_ = -1; // forces ask_kernel() to ask
}

// Clean copies only make the first invocations faster, and no other machine shares their memory. A machine that goes on
// serving replaces them by the image's own pages, a few at each reset, because each costs one more fault.
void WorkingSet::give_back_clean_copies() {
    constexpr unsigned kStart = 64; // invocations
    constexpr std::size_t kEachTime = 16;
    if (clean_copies_.empty() || ++resets_with_clean_copies_ <= kStart)
        return;
    std::vector<FrameRun> runs;
    Frame& next = next_clean_copy_;
    for (std::size_t count = 0; next < clean_copies_.size() && count < kEachTime; ++next)
        if (clean_copies_[next]) {
            clean_copies_[next] = false;
            append_frame(runs, next);
            ++count;
        }
    drop_copies(ram_, runs, "clean copies");
    if (next == clean_copies_.size()) {
        clean_copies_.clear();
        unwritten_.clear();
    }
}

void WorkingSet::forget() {
    frames_.clear();
    own_pages_ = 0;
    unchanged_.clear();
    given_back_.clear();
    clean_copies_.clear();
    unwritten_.clear();
    minor_faults_seen_ = -1;
}

} // namespace tinykvm
