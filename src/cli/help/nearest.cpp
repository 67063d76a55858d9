#include "src/cli/help/nearest.hpp"

#include <algorithm>

namespace kvmserver::cli {
namespace {

// Counts insertions, deletions, replacements and swaps of neighbours (optimal string alignment).
std::size_t distance(std::string_view a, std::string_view b) {
    std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
    for (std::size_t i = 0; i <= a.size(); ++i)
        d[i][0] = i;
    for (std::size_t j = 0; j <= b.size(); ++j)
        d[0][j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replaced = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, replaced});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
        }
    }
    return d[a.size()][b.size()];
}

std::size_t tolerance(std::size_t length) { return length <= 4 ? 1 : length <= 8 ? 2 : 3; }

} // namespace

std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& known) {
    constexpr std::size_t kLongestWord = 64; // longer words are not typos
    if (word.empty() || word.size() > kLongestWord)
        return std::nullopt;
    std::optional<std::string> best;
    std::size_t best_distance = tolerance(word.size()) + 1;
    for (const std::string& candidate : known) {
        const std::size_t d = distance(word, candidate);
        if (d < best_distance) {
            best = candidate;
            best_distance = d;
        }
    }
    if (best || word.size() < 3)
        return best;
    // Otherwise the word may be cut short: take the shortest word that begins with it.
    for (const std::string& candidate : known)
        if (candidate.starts_with(word) && (!best || candidate.size() < best->size()))
            best = candidate;
    return best;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known, std::string_view prefix) {
    const auto found = nearest(word, known);
    return found ? "; did you mean " + std::string(prefix) + *found + "?" : std::string();
}

} // namespace kvmserver::cli
