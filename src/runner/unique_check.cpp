#include "src/runner/unique_check.hpp"

#include <fmt/format.h>

#include "src/runner/trial.hpp"
#include "src/unique/repeats.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

// Replies come from the program: what a terminal would act on is not printed.
std::string printed(const std::string& value) {
    constexpr std::size_t kMost = 48;
    return value.size() > kMost ? value.substr(0, kMost) + "..." : value; // token characters only
}

} // namespace

std::vector<std::string> check_unique(const Setup& setup, const Options& options, const std::shared_ptr<const MachineImage>& image) {
    std::string first, second;
    std::vector<std::string> others;
    {
        Trial trial(setup, options, image);
        if (!trial.answer())
            return {};
        first = trial.reply();
        if (!trial.answer())
            return {};
        second = trial.reply();
    }
    if (first == second)
        return {}; // nothing in it is random
    // The later ones are asked later: times are not what they were. A second one makes sure.
    for (int i = 0; i < 2; ++i) {
        Trial trial(setup, options, image);
        if (!trial.answer())
            return {};
        others.push_back(trial.reply());
    }
    const auto repeats = unique::find_repeats(first, second, others);
    if (repeats.empty())
        return {};
    const std::string name = program_name(setup.program);
    std::vector<std::string> lines;
    for (const unique::Repeat& repeat : repeats) {
        lines.push_back(fmt::format("every request to {} answers \"{}\" in {}", options.warmup_path, printed(repeat.value), repeat.where));
        note_line(fmt::format("{}: {}: its random generator was seeded before the snapshot", name, lines.back()));
    }
    const std::string advice = "seed it in each request, use getrandom(2), or mark its state as an entropy region (docs/UNIQUENESS.md)";
    if (options.strict_unique)
        throw UserError(ExitCode::failure, fmt::format("{}: --strict-unique: random values would repeat in every request; {}", name, advice));
    note_line(fmt::format("{}: {}", name, advice));
    return lines;
}

} // namespace kvmserver
