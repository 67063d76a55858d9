#include "src/runner/hot_pages.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "tinykvm/base/error.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

constexpr double kTrialSeconds = 3;
// A snapshot is started long after it was taken: timers that are due by then belong to its first request.
constexpr std::uint64_t kTrialLaterNs = 86'400'000'000'000;

} // namespace

TrialPages trial_invocation(const Setup& setup, const Options& options, std::shared_ptr<const MachineImage> image) {
    MachineEnv env = setup.env;
    env.options.trial = true;
    env.options.verbose = false;
    env.options.trace_syscalls = env.options.trace_mmap = false;
    Booted trial;
    Options one = options;
    one.warmup = 1;
    one.limits.request_seconds = one.limits.boot_seconds = kTrialSeconds;
    trial.driver = std::make_unique<Driver>(*setup.listeners, [](const std::string&) {});
    trial.machine = Machine::clone(env, image, *trial.driver, ResetStrategy::working_set);
    trial.machine->skip_time(kTrialLaterNs);
    trial.machine->forget_accessed();
    try {
        warm_up(trial, one);
    } catch (const UserError&) {
        // Not a web server, or not for this path: what it touched until then is what is known.
    }
    auto used = trial.machine->accessed_frames();
    TrialPages pages{std::move(used.machine), trial.machine->written_frames()};
    // Those of the program that a clone needs as copies of its own from the start lie together.
    std::vector<bool> written(image->image->frames());
    for (const FrameRun& run : pages.written)
        std::fill_n(written.begin() + run.first, run.count, true);
    std::stable_partition(used.program.begin(), used.program.end(), [&](Frame frame) { return !written[frame]; });
    pages.hot.insert(pages.hot.end(), used.program.begin(), used.program.end());
    return pages;
}

void check_output(const std::string& path) {
    const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
    struct stat info{};
    if (::stat(folder.c_str(), &info) < 0 || !S_ISDIR(info.st_mode))
        throw UserError(ExitCode::not_found, fmt::format("{}: the folder {} does not exist; make it first", path, folder.string()));
    if (::access(folder.c_str(), W_OK) < 0)
        throw UserError(ExitCode::not_permitted, fmt::format("{}: {}: {}", path, folder.string(), std::strerror(errno)));
    if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode))
        throw UserError(ExitCode::usage, fmt::format("{}: is a folder; give the name of a file", path));
}

} // namespace kvmserver
