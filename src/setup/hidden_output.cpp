#include "src/setup/hidden_output.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "src/setup/report.hpp"

namespace kvmserver {

namespace {

std::string grouped(std::uint64_t number) {
    std::string text = fmt::to_string(number);
    for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3)
        text.insert(static_cast<std::size_t>(at), ",");
    return text;
}

} // namespace

void HiddenOutput::add(int stream, std::string_view bytes) {
    const std::size_t which = stream == STDERR_FILENO ? 1 : 0;
    std::string& line = incomplete_[which];
    while (!bytes.empty()) {
        const std::size_t newline = bytes.find('\n');
        const std::string_view part = bytes.substr(0, newline);
        line.append(part.substr(0, kKeptOfLine - std::min(line.size(), kKeptOfLine)));
        has_incomplete_[which] = newline == bytes.npos;
        if (newline == bytes.npos)
            return;
        keep(std::move(line));
        line.clear();
        bytes.remove_prefix(newline + 1);
    }
}

void HiddenOutput::keep(std::string line) {
    ++lines_;
    kept_.push_back(std::move(line));
    if (kept_.size() > kKept)
        kept_.pop_front();
}

std::uint64_t HiddenOutput::lines() const {
    return lines_ + static_cast<std::uint64_t>(std::ranges::count(has_incomplete_, true));
}

std::string HiddenOutput::last_lines() const {
    std::deque<std::string> all = kept_;
    for (std::size_t i = 0; i < incomplete_.size(); ++i)
        if (has_incomplete_[i])
            all.push_back(incomplete_[i]);
    std::string text;
    for (std::size_t i = all.size() > kKept ? all.size() - kKept : 0; i < all.size(); ++i)
        text += all[i] + '\n';
    return text;
}

void HiddenOutput::tell_count() {
    if (const std::uint64_t hidden = lines(); hidden > 0)
        note_line(fmt::format("{}: {} line{} of output during warm-up not shown (-v shows {})", program_,
                              grouped(hidden), hidden == 1 ? "" : "s", hidden == 1 ? "it" : "them"));
    *this = HiddenOutput(std::move(program_));
}

void HiddenOutput::show_last() {
    const std::string text = last_lines();
    if (text.empty())
        return;
    const auto shown = std::ranges::count(text, '\n');
    note_line(
        fmt::format("{}: the last of its output during warm-up, {} line{}:", program_, shown, shown == 1 ? "" : "s"));
    for (std::string_view left = text; !left.empty();) {
        const ssize_t count = ::write(STDERR_FILENO, left.data(), left.size());
        if (count <= 0)
            break; // nobody reads it
        left.remove_prefix(static_cast<std::size_t>(count));
    }
    *this = HiddenOutput(std::move(program_));
}

} // namespace kvmserver
