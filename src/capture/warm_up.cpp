#include "src/capture/warm_up.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/capture/synthetic_request.hpp"
#include "src/event_loop/overrun.hpp"
#include "src/setup/boot.hpp"
#include "src/setup/report.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

constexpr std::uint64_t kShortLivedSeconds = 2;
// V8 collects garbage in steps, eight seconds apart; with the React example the last one is 154 s after the last
// request.
constexpr std::uint64_t kContinuesSeconds = 180;

std::uint64_t seconds_ahead(const Options& options) {
    return options.clock == "continues" ? kContinuesSeconds : kShortLivedSeconds;
}

// `before`: rounds before these.
void warm_up_before(Booted& booted, const Options& options, unsigned before, unsigned rounds) {
    if (rounds == 0)
        return;
    const std::uint64_t each = options.warmup_requests.size();
    const std::uint64_t least =
        warm_up(booted, options, rounds, {.before = before * each, .all = options.warmup * each});
    booted.warm_ns = booted.warm_ns == 0 ? least : std::min(least, booted.warm_ns);
}

std::string how_it_ended(const Stop& stop) {
    return stop.kind == StopKind::exited ? fmt::format("exited with status {}", stop.status) : stop.report;
}

// What the program printed last tells why it did not answer.
[[noreturn]] void fail(const Booted& booted, ExitCode code, const std::string& why) {
    if (booted.hidden)
        booted.hidden->show_last();
    throw UserError(code, "warm-up: " + why);
}

} // namespace

std::uint64_t warm_up_once(Booted& booted, const Options& options, const WarmupRequest& request, unsigned client) {
    const std::uint64_t begin = thread_cpu_ns(); // CPU time, not wall time: other processes would distort it
    const SyntheticReply reply = ask(*booted.machine, *booted.loop, request.wire(client), options.limits);
    const std::uint64_t took = thread_cpu_ns() - begin;
    booted.warm_statuses.push_back(reply.status());
    booted.warm_reply = reply.text;
    if (reply.end == LoopEnd::stopped || reply.end == LoopEnd::timeout)
        report_refusals("warm-up", *booted.loop);
    if (reply.end == LoopEnd::stopped)
        fail(booted, ExitCode::failure,
             "the program ended while it answered " + request.name() + ": " + how_it_ended(booted.loop->stop()));
    if (reply.end == LoopEnd::timeout)
        fail(booted, ExitCode::unreachable,
             "the program did not answer " + request.name() + " and close: it " +
                 overrun_text(booted.loop->overrun(), options.limits));
    if (reply.end == LoopEnd::stuck)
        fail(booted, ExitCode::unreachable,
             "the program did not answer " + request.name() + " and close: it waits for what never comes");
    if (!settle(*booted.machine, *booted.loop, options.limits.boot_seconds))
        fail(booted, ExitCode::failure, "the program does not wait for connections any more");
    return took;
}

std::uint64_t warm_up(Booted& booted, const Options& options, unsigned rounds, const WarmUpCount& told) {
    if (booted.hidden && rounds > 0)
        booted.loop->set_output(sink_of(booted.hidden));
    std::uint64_t least = 0;
    for (std::uint64_t round = 0, sent = told.before; round < rounds; ++round) {
        std::uint64_t took = 0;
        booted.warm_statuses.clear();
        // The last round is as in a trial, with which its replies are compared.
        const auto client = static_cast<unsigned>((rounds - 1 - round) % kWarmupClients);
        for (const WarmupRequest& request : options.warmup_requests) {
            ++sent;
            if (told.all != 1)
                tell_phase(options, {.name = "warm-up",
                                     .what = "warming up",
                                     .detail = told.all > 0 ? fmt::format("request {} of {}", sent, told.all)
                                                            : fmt::format("request {}", sent),
                                     .done = sent,
                                     .all = told.all});
            took += warm_up_once(booted, options, request, client);
        }
        least = round == 0 ? took : std::min(least, took);
    }
    return least;
}

LoopEnd run_out_timers(Booted& booted, const Options& options) {
    return run_out_timers(*booted.machine, *booted.loop, seconds_ahead(options), options.limits.boot_seconds);
}

bool prepare_for_image(Booted& booted, const Options& options, const std::string& name) {
    // If the clock continues, a garbage collection by timer discards code (V8: code not used lately, and all optimised
    // code), and the last requests restore it. Fewer than a thousand are not enough for V8 to optimise again. They only
    // produce garbage that makes V8 postpone the next collection, for which two are enough.
    constexpr unsigned kEnoughToOptimise = 1000;
    const unsigned after = options.clock != "continues"          ? 0
                           : options.warmup >= kEnoughToOptimise ? options.warmup / 10 * 9
                                                                 : std::min(options.warmup, 2u);
    if (!options.warmup_auto)
        warm_up_before(booted, options, 0, options.warmup - after);
    booted.end = run_out_timers(booted, options);
    if (booted.end == LoopEnd::quiescent) {
        if (!options.warmup_auto)
            warm_up_before(booted, options, options.warmup - after, after);
        return true;
    }
    if (booted.hidden)
        booted.hidden->show_last();
    const std::string when = fmt::format(
        "when its timers of the next {} s ran out, as they have when its image is used: a server must go on "
        "waiting for connections",
        seconds_ahead(options));
    if (booted.end == LoopEnd::stopped) {
        booted.exit_code = report_stop(name, booted.loop->stop());
        note_line(fmt::format("{}: ended {}", name, when));
        if (booted.exit_code == 0)
            booted.exit_code = static_cast<int>(ExitCode::failure);
    } else if (booted.end == LoopEnd::timeout) {
        note_line(fmt::format("{}: did not wait for connections any more {}", name, when));
        booted.exit_code = static_cast<int>(ExitCode::unreachable);
    }
    report_refusals(name, *booted.loop);
    booted.machine.reset();
    return false;
}

} // namespace kvmserver
