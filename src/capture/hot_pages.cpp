#include "src/capture/hot_pages.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <future>
#include <utility>

#include "src/capture/trial.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

struct Used {
    Machine::AccessedFrames frames;
    std::vector<FrameRun> written;
    std::uint32_t headroom = 0;
    bool answered = false;
    std::vector<std::string> replies; // to the only request
};

// `times`: of the request, if there is one only; the pages are those of the first answer. `ahead_ns`: of the trial's
// time of day.
Used answer_in_trial(const Setup& setup, const Options& options, const std::shared_ptr<const MachineImage>& image,
                     std::size_t times, std::uint64_t ahead_ns) {
    Trial trial(setup, options, image);
    trial.machine().set_time_of_day_ahead(ahead_ns);
    trial.machine().forget_accessed();
    Used used;
    used.answered = trial.answer(); // otherwise the pages touched so far are the result
    used.frames = trial.machine().accessed_frames();
    used.written = trial.machine().written_frames();
    used.headroom = static_cast<std::uint32_t>(trial.machine().memory_bytes() / kPageSize);
    if (used.answered && options.warmup_requests.size() == 1) {
        used.replies.push_back(trial.reply());
        while (used.replies.size() < times && trial.answer(options.warmup_requests.front()))
            used.replies.push_back(trial.reply());
    }
    return used;
}

} // namespace

TrialPages trial_invocation(const Setup& setup, const Options& options,
                            const std::shared_ptr<const MachineImage>& image) {
    // Half a second apart: at most one is in a trial while a second of the time of day ends. Programs set timers for
    // that: Node's Date header does.
    constexpr std::uint64_t kApartNs = 500'000'000;
    auto second = std::async([&] { return answer_in_trial(setup, options, image, 1, kApartNs); });
    Used used = answer_in_trial(setup, options, image, 2, 0);
    const Used again = second.get();
    // A page that a thread touched in only one of two trials is not hot. A few such pages would move the chunks'
    // boundaries, and snapshots of the same program would share less.
    if (used.answered && again.answered) {
        std::vector<bool> both(image->image->frames());
        for (const Frame frame : again.frames.program)
            both[frame] = true;
        std::erase_if(used.frames.program, [&](Frame frame) { return !both[frame]; });
    }
    TrialPages pages{std::move(used.frames.machine), std::move(used.written), used.headroom, {used.answered, {}}};
    if (used.replies.size() == 2 && again.replies.size() == 1)
        pages.tried.replies = {std::move(used.replies[0]), std::move(used.replies[1]), again.replies[0]};
    // Program pages that a clone copies from the start are placed together.
    std::vector<bool> written(image->image->frames());
    for (const FrameRun& run : pages.written)
        std::fill_n(written.begin() + run.first, run.count, true);
    auto& program = used.frames.program;
    std::stable_partition(program.begin(), program.end(), [&](Frame frame) { return !written[frame]; });
    pages.hot.insert(pages.hot.end(), program.begin(), program.end());
    return pages;
}

void check_output(const std::string& path) {
    const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
    struct stat info {};
    if (::stat(folder.c_str(), &info) < 0 || !S_ISDIR(info.st_mode))
        throw UserError(ExitCode::not_found,
                        fmt::format("{}: the folder {} does not exist; make it first", path, folder.string()));
    if (::access(folder.c_str(), W_OK) < 0)
        throw UserError(ExitCode::not_permitted,
                        fmt::format("{}: {}: {}", path, folder.string(), std::strerror(errno)));
    if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode))
        throw UserError(ExitCode::usage, fmt::format("{}: is a folder; give the name of a file", path));
}

} // namespace kvmserver
