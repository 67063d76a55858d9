#include "src/capture/capture_timing.hpp"

#include <fmt/format.h>

#include "src/capture/before_snapshot.hpp"
#include "src/capture/random_state.hpp"
#include "src/capture/trial.hpp"
#include "src/capture/warm_up.hpp"
#include "src/event_loop/event_loop.hpp"
#include "src/setup/boot.hpp"
#include "src/setup/report.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/machine/renumber.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

// An invocation is expensive when it exceeds the warm-up's cheapest request by this factor and by this many
// nanoseconds. A clean machine's own overhead (page copies, cold caches) is less.
constexpr std::uint64_t kExpensiveFactor = 3, kExpensiveNs = 500'000;
constexpr unsigned kAttempts = 8;
constexpr const char* kWarmUp = "warm-up";
constexpr const char* kWarmingUp = "warming up";

// Image of a machine that continued from `image` for `rounds` more of the warm-up requests; null when one of them
// failed, which has been logged then. `before`: requests before these.
std::shared_ptr<MachineImage> later_image(const Setup& setup, const Options& options,
                                          const std::shared_ptr<const MachineImage>& image, unsigned rounds,
                                          std::uint64_t before, const std::shared_ptr<HiddenOutput>& hidden) {
    Booted further;
    further.hidden = hidden;
    further.loop = std::make_unique<EventLoop>(*setup.listeners, note_line);
    further.machine = Machine::clone(setup.env, image, *further.loop, ResetStrategy::working_set);
    const auto run_out = [&] {
        if (run_out_timers(further, options) != LoopEnd::quiescent)
            throw UserError(ExitCode::failure,
                            "the program does not wait for connections any more when its timers ran out");
    };
    try {
        if (options.clock == "continues") { // a timer's garbage collection discards code; the last requests restore it
            warm_up(further, options, 1, {.before = before});
            run_out();
            warm_up(further, options, rounds - 1, {.before = before + options.warmup_requests.size()});
        } else {
            warm_up(further, options, rounds, {.before = before});
            run_out();
        }
    } catch (const UserError& error) {
        if (hidden)
            hidden->show_last(); // unless that is done already
        note_line(fmt::format("{}: {}", program_name(setup.program), error.what()));
        return nullptr;
    }
    return renumber(*std::move(*further.machine).into_image(), {});
}

using Statuses = std::vector<unsigned>; // of the replies to the warm-up requests

struct Measured {
    // CPU time of an invocation with each warm-up request, added up. nullopt when a reply's status is not the expected
    // one: a trial may not connect to other hosts, and a failing request is no measure.
    std::optional<std::uint64_t> ns;
    Statuses statuses; // empty when one was not answered
};

Measured measured(const Setup& setup, const Options& options, const std::shared_ptr<MachineImage>& image,
                  const Statuses& expected) {
    Trial trial(setup, options, image);
    if (!trial.answer())
        return {};
    const auto cost = trial.cost_ns();
    if (!cost)
        return {};
    return {trial.statuses() == expected ? cost : std::nullopt, trial.statuses()};
}

std::string ms(std::uint64_t ns) { return fmt::format("{:.2f} ms", static_cast<double>(ns) / 1e6); }

// Candidate moments for the image, each some requests later than the one before. Keeps the cheapest.
class Moments {
public:
    // `sent`: requests before the first moment, for the progress.
    Moments(const Setup& setup, const Options& options, std::shared_ptr<MachineImage> first, Statuses statuses,
            std::uint64_t sent, std::shared_ptr<HiddenOutput> hidden)
        : setup_(setup), options_(options), statuses_(std::move(statuses)), sent_(sent), hidden_(std::move(hidden)),
          best_(first), last_(std::move(first)), best_ns_(measured(setup, options, best_, statuses_).ns) {}

    // Measures after `rounds` more rounds. False when the program no longer answers.
    bool measure_after(unsigned rounds) {
        last_ = later_image(setup_, options_, last_, rounds, sent_ + requests_, hidden_);
        if (!last_)
            return false;
        requests_ += rounds * options_.warmup_requests.size();
        tell_phase(options_, {.name = kWarmUp,
                              .what = kWarmingUp,
                              .detail = fmt::format("request {}, {} each at best", sent_ + requests_, ms(*best_ns_)),
                              .done = sent_ + requests_});
        const auto [now, statuses] = measured(setup_, options_, last_, statuses_);
        if (options_.verbose.general)
            note_line(fmt::format("{}: after {} requests more an invocation would take {} of CPU (before: {})",
                                  program_name(setup_.program), requests_, now ? ms(*now) : "no answer",
                                  ms(*best_ns_)));
        if (now && *now < *best_ns_) {
            best_ = last_;
            best_ns_ = now;
            requests_of_best_ = requests_;
        }
        if (!now && options_.warmup_auto)
            tell_change(statuses);
        return now.has_value();
    }

    std::optional<std::uint64_t> best_ns() const { return best_ns_; } // nullopt: the first image did not answer
    std::uint64_t requests() const { return requests_; }              // that were answered, after the first moment
    std::uint64_t requests_of_best() const { return requests_of_best_; }
    std::shared_ptr<MachineImage> best() { return std::move(best_); }

private:
    // Of the first request whose reply has another status than before.
    void tell_change(const Statuses& now) const {
        for (std::size_t i = 0; i < now.size(); ++i)
            if (now[i] != statuses_[i])
                return note_line(fmt::format("{}: the warm-up ends early: after {} requests {} is answered with status "
                                             "{}, before with {}; warm-up requests must not change what they get",
                                             program_name(setup_.program), requests_,
                                             options_.warmup_requests[i].name(), now[i], statuses_[i]));
    }

    const Setup& setup_;
    const Options& options_;
    const Statuses statuses_; // expected of replies
    const std::uint64_t sent_;
    const std::shared_ptr<HiddenOutput> hidden_;
    std::uint64_t requests_ = 0, requests_of_best_ = 0;
    std::shared_ptr<MachineImage> best_, last_;
    std::optional<std::uint64_t> best_ns_;
};

// Image after the requested warm-up, or some requests later when an invocation is expensive at that point.
std::shared_ptr<MachineImage> image_about_now(const Setup& setup, const Options& options, const Booted& booted,
                                              std::shared_ptr<MachineImage> image) {
    if (booted.warm_ns == 0)
        return image;
    Moments moments(setup, options, std::move(image), booted.warm_statuses,
                    options.warmup * options.warmup_requests.size(), booted.hidden);
    const auto is_expensive = [&] {
        const std::uint64_t ns = *moments.best_ns();
        return ns > booted.warm_ns * kExpensiveFactor && ns > booted.warm_ns + kExpensiveNs;
    };
    for (unsigned attempt = 0; moments.best_ns() && is_expensive() && attempt < kAttempts; ++attempt)
        if (!moments.measure_after(1 + (2u << (2 * (attempt % 4))))) // 3, 9, 33, 129, 3, ...
            break;
    return moments.best();
}

// Of --warmup auto, for people: "/", "3 paths".
std::string targets_of(const Options& options) {
    const auto& all = options.warmup_requests;
    return all.size() == 1 ? all.front().target : fmt::format("{} targets", all.size());
}

// What --warmup auto did. All requests count that the program answered; those after the best moment are not in the
// image.
std::string warm_up_text(std::uint64_t sent, std::uint64_t kept, const std::string& targets, std::uint64_t ns,
                         std::uint64_t cold_ns) {
    const std::string requests = fmt::format("{} request{} to {}", sent, sent == 1 ? "" : "s", targets);
    if (kept == 0)
        return fmt::format("{} made an invocation no cheaper ({} of CPU); the state before them is saved", requests,
                           ms(cold_ns));
    const std::string which = kept == sent ? "" : fmt::format(", saved after {}", kept);
    return fmt::format("{}{}: an invocation takes {} of CPU, {} without warm-up", requests, which, ms(ns), ms(cold_ns));
}

// Leaves out the warm-up requests that a trial does not answer: each is tried there first, because nobody has said that
// it is safe for this program. Returns the others' statuses.
Statuses leave_out_unanswered(const Setup& setup, Options& options, const std::shared_ptr<MachineImage>& image) {
    Statuses statuses;
    std::vector<WarmupRequest> answered;
    for (const WarmupRequest& request : options.warmup_requests) {
        Trial trial(setup, options, image);
        const bool got_one = trial.answer(request);
        if (trial.machine().child_serves()) {
            note_line(fmt::format("{}: no warm-up: it forks for each connection, so what a request loads is gone with "
                                  "the child that answered it",
                                  program_name(setup.program)));
            return {};
        }
        if (got_one && trial.statuses().front() != 0) {
            statuses.push_back(trial.statuses().front());
            answered.push_back(request);
        } else {
            note_line(fmt::format("{}: no warm-up: the trial request {} got no answer; name a path that gets one "
                                  "(--warmup-path, or [function.hooks] health)",
                                  program_name(setup.program), request.name()));
            trial.output().show_last();
        }
    }
    options.warmup_requests = std::move(answered);
    return statuses;
}

// --warmup auto: sends more requests in each step until that no longer helps.
std::shared_ptr<MachineImage> warmest_image(const Setup& setup, Options options, std::shared_ptr<MachineImage> image,
                                            const std::shared_ptr<HiddenOutput>& hidden) {
    // A step copies the image, which costs as much as some hundred requests. Four times as many in each step leave
    // half of the steps that twice as many take.
    constexpr unsigned kFirst = 8, kGrowth = 4, kMax = 2048, kMaxStepsWithoutGain = 2;
    // JIT compilers wait for hundreds of calls: with Node, an invocation costs the same after 24 and after 500
    // requests, and half of that after 4,000. A plateau ends the warm-up only after this many requests, or when so much
    // CPU time brought no gain: on a busy host time passes without requests.
    constexpr unsigned kPlateauRounds = 1000;
    constexpr std::uint64_t kLongNs = 2'000'000'000;
    const std::string name = program_name(setup.program);
    std::uint64_t begin = host_mono_ns();
    const std::uint64_t end = begin + static_cast<std::uint64_t>(options.warmup_seconds * 1e9);
    // `most` rounds, or as many as the remaining time allows.
    const auto in_time = [&](std::uint64_t of_round, std::uint64_t most) {
        const std::uint64_t now = host_mono_ns();
        return static_cast<unsigned>(now < end ? std::min(most, (end - now) / std::max<std::uint64_t>(of_round, 1))
                                               : 0);
    };
    tell_phase(options, {.name = kWarmUp, .what = kWarmingUp});
    const Statuses statuses = leave_out_unanswered(setup, options, image);
    if (statuses.empty())
        return image;
    std::uint64_t of_round = host_mono_ns() - begin;
    Moments moments(setup, options, std::move(image), statuses, 0, hidden);
    if (!moments.best_ns())
        return moments.best();
    const std::uint64_t cold = *moments.best_ns();
    unsigned steps_without_gain = 0, sent = 0;
    std::uint64_t last_gain = thread_cpu_ns();
    const auto plateau = [&] {
        return steps_without_gain >= kMaxStepsWithoutGain &&
               (sent >= kPlateauRounds || thread_cpu_ns() - last_gain >= kLongNs);
    };
    for (std::uint64_t wanted = kFirst; !plateau() && wanted <= kMax; wanted *= kGrowth) {
        const std::uint64_t before = *moments.best_ns();
        const unsigned rounds = in_time(of_round, wanted);
        begin = host_mono_ns();
        if (rounds == 0 || !moments.measure_after(rounds))
            break;
        sent += rounds;
        of_round = (host_mono_ns() - begin) / rounds;
        if (*moments.best_ns() < before - before / 32) {
            steps_without_gain = 0;
            last_gain = thread_cpu_ns();
        } else {
            ++steps_without_gain;
        }
    }
    note_line(fmt::format(
        "{}: warm-up: {}", name,
        warm_up_text(moments.requests(), moments.requests_of_best(), targets_of(options), *moments.best_ns(), cold)));
    return moments.best();
}

// Notes what must be filled anew for every invocation. Returns the line that it logged; that one is not logged again.
std::string note_random_state(const Setup& setup, const Options& options, MachineImage& image,
                              const std::string& logged = "") {
    const std::string name = program_name(setup.program);
    const std::string left_out = find_random_state(image, options.verbose.general ? name : "");
    if (left_out.empty())
        return logged;
    std::string line =
        fmt::format("{}: not all of its random state is filled anew in every invocation: {}", name, left_out);
    if (options.strict_unique)
        throw UserError(ExitCode::failure, line + " (--strict-unique)");
    if (line != logged)
        note_line(line);
    return line;
}

} // namespace

Taken take_image(const Setup& setup, const Options& options, Booted booted, const OnImage& on_cold) {
    auto image = std::move(*booted.machine).into_image();
    booted.machine.reset();
    const auto tell_hidden = [&] {
        if (booted.hidden)
            booted.hidden->tell_count();
    };
    const auto run_before_snapshot = [&] {
        if (!options.before_snapshot.empty())
            image = before_snapshot(setup, image, options.before_snapshot);
    };
    if (!options.warmup_auto) {
        image = image_about_now(setup, options, booted, std::move(image));
        tell_hidden();
        run_before_snapshot();
        note_random_state(setup, options, *image);
        return {std::move(image)};
    }
    const std::weak_ptr<MachineImage> cold = image; // not its address, which a later image may have
    std::string logged;
    if (on_cold) {
        auto copy = options.before_snapshot.empty() ? std::make_shared<MachineImage>(*image)
                                                    : before_snapshot(setup, image, options.before_snapshot);
        logged = note_random_state(setup, options, *copy);
        on_cold(std::move(copy));
    }
    image = warmest_image(setup, options, std::move(image), booted.hidden);
    tell_hidden();
    const bool is_cold = image == cold.lock();
    if (!is_cold || !on_cold) {
        run_before_snapshot();
        note_random_state(setup, options, *image, logged);
    }
    return {std::move(image), is_cold};
}

} // namespace kvmserver
