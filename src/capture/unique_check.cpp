#include "src/capture/unique_check.hpp"

#include <fmt/format.h>

#include <optional>

#include "src/capture/trial.hpp"
#include "src/setup/report.hpp"
#include "src/unique/repeats.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

// Replies come from the program: never print characters that a terminal would act on.
std::string printed(const std::string& value) {
    constexpr std::size_t kMax = 48;
    return value.size() > kMax ? value.substr(0, kMax) + "..." : value; // consists of token characters only
}

// Of a further clone; nullopt when it did not answer.
std::optional<std::string> reply_of(const Setup& setup, const Options& options,
                                    const std::shared_ptr<const MachineImage>& image, const WarmupRequest& request) {
    Trial trial(setup, options, image);
    return trial.answer(request) ? std::optional(trial.reply()) : std::nullopt;
}

// `other` is left out if the reply holds nothing random. nullopt when a clone did not answer.
std::optional<Replies> replies_of(const Setup& setup, const Options& options,
                                  const std::shared_ptr<const MachineImage>& image, const WarmupRequest& request) {
    Replies replies;
    {
        Trial trial(setup, options, image);
        for (std::string* reply : {&replies.first, &replies.second}) {
            if (!trial.answer(request))
                return std::nullopt;
            *reply = trial.reply();
        }
    }
    if (replies.first == replies.second)
        return replies;
    auto other = reply_of(setup, options, image, request);
    if (!other)
        return std::nullopt;
    replies.other = std::move(*other);
    return replies;
}

std::string unanswered(const std::string& request) {
    return fmt::format("the trial request {} got no answer: whether random values repeat is not known", request);
}

// What every invocation would repeat in its reply to `request`; nullopt when that is not known.
std::optional<std::vector<unique::Repeat>> repeats_of(const Setup& setup, const Options& options,
                                                      const std::shared_ptr<const MachineImage>& image,
                                                      const WarmupRequest& request,
                                                      const std::optional<Replies>& known) {
    const auto replies = known ? known : replies_of(setup, options, image, request);
    if (!replies)
        return std::nullopt;
    const auto& [first, second, other] = *replies;
    if (first == second)
        return std::vector<unique::Repeat>{};
    const auto later = reply_of(setup, options, image, request); // later than the others, so that times differ
    if (!later)
        return std::nullopt;
    return unique::find_repeats(first, second, {other, *later});
}

} // namespace

std::vector<std::string> check_unique(const Setup& setup, const Options& options,
                                      const std::shared_ptr<const MachineImage>& image, const Tried& tried,
                                      const NoteLine& note) {
    const std::string name = program_name(setup.program);
    std::vector<std::string> unknown, repeated;
    for (const WarmupRequest& request : options.warmup_requests) {
        const auto repeats = tried.answered ? repeats_of(setup, options, image, request, tried.replies) : std::nullopt;
        if (!repeats) {
            unknown.push_back(unanswered(request.name()));
            continue;
        }
        for (const unique::Repeat& repeat : *repeats) {
            repeated.push_back(fmt::format("every request to {} answers \"{}\" in {}", request.target,
                                           printed(repeat.value), repeat.where));
            note(fmt::format("{}: {}: its random generator was seeded before the snapshot", name, repeated.back()));
        }
    }
    if (!unknown.empty() && options.strict_unique)
        throw UserError(ExitCode::failure, fmt::format("{}: --strict-unique: {}; name a path that it answers by "
                                                       "--warmup-path",
                                                       name, unknown.front()));
    if (!repeated.empty()) {
        const std::string advice =
            "seed it in each request, use getrandom(2), or mark its state as an entropy region (docs/UNIQUENESS.md)";
        if (options.strict_unique)
            throw UserError(
                ExitCode::failure,
                fmt::format("{}: --strict-unique: random values would repeat in every request; {}", name, advice));
        note(fmt::format("{}: {}", name, advice));
    }
    repeated.insert(repeated.end(), unknown.begin(), unknown.end());
    return repeated;
}

} // namespace kvmserver
