#include "src/runner/image_moment.hpp"

#include <fmt/format.h>

#include "src/runner/own_request.hpp"
#include "src/runner/random_state.hpp"
#include "src/runner/trial.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/machine/renumber.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

// What a clean machine adds of its own (copies, cold caches) is less than this.
constexpr std::uint64_t kDearTimes = 3, kDearNs = 500'000;
constexpr unsigned kAttempts = 8;

// The image of a machine that went on from `image` for a few more requests; null when it did not get through them.
std::shared_ptr<MachineImage> later_image(const Setup& setup, const Options& options,
                                          std::shared_ptr<const MachineImage> image, unsigned requests) {
    Booted further;
    further.loop = std::make_unique<EventLoop>(*setup.listeners, note_line);
    further.machine = Machine::clone(setup.env, std::move(image), *further.loop, ResetStrategy::working_set);
    try {
        warm_up(further, options, 1);
        if (run_out_timers(*further.machine, *further.loop, options.limits.boot_seconds) != LoopEnd::quiescent)
            return nullptr;
        warm_up(further, options, requests);
    } catch (const UserError&) {
        return nullptr;
    }
    return renumber(*std::move(*further.machine).into_image(), {});
}

// Nothing: it does not answer as it did in the warm-up. A trial may not connect elsewhere, and what fails is no
// measure.
std::optional<std::uint64_t> invocation_ns(const Setup& setup, const Options& options,
                                           const std::shared_ptr<MachineImage>& image, unsigned status) {
    Trial trial(setup, options, image);
    if (!trial.answer() || trial.status() != status)
        return std::nullopt;
    const auto cost = trial.cost_ns();
    return trial.status() == status ? cost : std::nullopt;
}

std::shared_ptr<MachineImage> best_image(const Setup& setup, const Options& options, Booted booted) {
    auto image = std::move(*booted.machine).into_image();
    booted.machine.reset();
    if (booted.warm_ns == 0)
        return image;
    const auto dear = [&](std::uint64_t ns) {
        return ns > booted.warm_ns * kDearTimes && ns > booted.warm_ns + kDearNs;
    };
    auto cost = invocation_ns(setup, options, image, booted.warm_status);
    auto last = image;
    for (unsigned attempt = 1, more = 0; cost && dear(*cost) && attempt <= kAttempts; ++attempt) {
        const unsigned requests = 2u << (2 * ((attempt - 1) % 4)); // 2, 8, 32, 128, 2, ...
        last = later_image(setup, options, last, requests);
        if (!last)
            break;
        more += 1 + requests;
        const auto now = invocation_ns(setup, options, last, booted.warm_status);
        if (options.verbose.general)
            note_line(fmt::format("{}: an invocation would take {:.2f} ms of CPU, the warm-up's cheapest request took "
                                  "{:.2f}; after {} more: {}",
                                  program_name(setup.program), static_cast<double>(*cost) / 1e6,
                                  static_cast<double>(booted.warm_ns) / 1e6, more,
                                  now ? fmt::format("{:.2f} ms", static_cast<double>(*now) / 1e6) : "no answer"));
        if (now && *now < *cost) {
            image = last;
            cost = now;
        }
    }
    return image;
}

} // namespace

std::shared_ptr<MachineImage> take_image(const Setup& setup, const Options& options, Booted booted) {
    auto image = best_image(setup, options, std::move(booted));
    const std::string name = program_name(setup.program);
    const std::string left_out = find_random_state(*image, options.verbose.general ? name : "");
    if (!left_out.empty()) {
        const std::string line =
            fmt::format("{}: not all of its random state is filled anew in every invocation: {}", name, left_out);
        if (options.strict_unique)
            throw UserError(ExitCode::failure, line + " (--strict-unique)");
        note_line(line);
    }
    return image;
}

} // namespace kvmserver
