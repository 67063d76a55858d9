#include "src/capture/unique_check.hpp"

#include <fmt/format.h>

#include <array>
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

// Replies: two by one clone, then one each by two other clones; nullopt when one did not answer. The other clones are
// asked later, so that times differ.
std::optional<std::array<std::string, 4>> replies_of(const Setup& setup, const Options& options,
                                                     const std::shared_ptr<const MachineImage>& image) {
    std::array<std::string, 4> replies;
    {
        Trial trial(setup, options, image);
        for (std::string* reply : {&replies[0], &replies[1]}) {
            if (!trial.answer())
                return std::nullopt;
            *reply = trial.reply();
        }
    }
    if (replies[0] == replies[1])
        return replies; // the reply holds nothing random
    for (std::string* reply : {&replies[2], &replies[3]}) {
        Trial trial(setup, options, image);
        if (!trial.answer())
            return std::nullopt;
        *reply = trial.reply();
    }
    return replies;
}

} // namespace

std::vector<std::string> check_unique(const Setup& setup, const Options& options,
                                      const std::shared_ptr<const MachineImage>& image, bool answers,
                                      const NoteLine& note) {
    const std::string name = program_name(setup.program);
    const auto replies = answers ? replies_of(setup, options, image) : std::nullopt;
    if (!replies) {
        const std::string line = fmt::format(
            "the trial request GET {} got no answer: whether random values repeat is not known", options.warmup_path);
        if (options.strict_unique)
            throw UserError(
                ExitCode::failure,
                fmt::format("{}: --strict-unique: {}; name a path that it answers by --warmup-path", name, line));
        return {line};
    }
    const auto& [first, second, third, fourth] = *replies;
    if (first == second)
        return {};
    const auto repeats = unique::find_repeats(first, second, {third, fourth});
    if (repeats.empty())
        return {};
    std::vector<std::string> lines;
    for (const unique::Repeat& repeat : repeats) {
        lines.push_back(fmt::format("every request to {} answers \"{}\" in {}", options.warmup_path,
                                    printed(repeat.value), repeat.where));
        note(fmt::format("{}: {}: its random generator was seeded before the snapshot", name, lines.back()));
    }
    const std::string advice =
        "seed it in each request, use getrandom(2), or mark its state as an entropy region (docs/UNIQUENESS.md)";
    if (options.strict_unique)
        throw UserError(
            ExitCode::failure,
            fmt::format("{}: --strict-unique: random values would repeat in every request; {}", name, advice));
    note(fmt::format("{}: {}", name, advice));
    return lines;
}

} // namespace kvmserver
