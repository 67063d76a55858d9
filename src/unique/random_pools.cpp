#include "src/unique/random_pools.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <regex>
#include <set>

namespace kvmserver::unique {

namespace {

constexpr std::size_t kAround = 160; // characters examined on either side of a call
constexpr std::size_t kMaxCalls = 4096, kMaxPools = 64, kMaxAliases = 64, kMaxMatches = 1 << 18;
constexpr std::size_t kMaxScript = 4 << 20; // how far after its import an alias of a function is searched
constexpr std::array<std::string_view, 2> kCalls{"randomFillSync", "getRandomValues"};

std::string escaped(const std::string& name) {
    std::string out;
    for (const char c : name)
        out += c == '$' ? "\\$" : std::string(1, c);
    return out;
}

// `before` is the text in front of the function's name, `after` the text behind it.
std::optional<PoolNames> pool_of_call(const std::string& before, const std::string& after) {
    static const std::regex call(
        R"(^\s*\)?\s*\(\s*([A-Za-z_$][\w$]*)\s*\)\s*[,;)]*\s*([A-Za-z_$][\w$]*)\s*=\s*0(?![\w.]))");
    std::smatch found;
    if (!std::regex_search(after, found, call))
        return std::nullopt;
    PoolNames names{found[2], found[1]};
    if (names.used == names.pool)
        return std::nullopt;
    const std::string used = escaped(names.used), length = escaped(names.pool) + R"(\.length)", some = R"([\w$]+)",
                      number = R"((\d{1,4}))";
    const auto matches = [&](const std::string& pattern) {
        return std::regex_search(before, found, std::regex("(?:^|[^\\w$.])" + pattern + "(?![\\w$.])"));
    };
    if (matches(used + R"(\s*>\s*)" + length + R"(\s*-\s*)" + number) ||
        matches(length + R"(\s*-\s*)" + number + R"(\s*<\s*)" + used))
        names.portion = std::stoi(found[1]);
    else if (!matches(used + R"(\s*\+\s*)" + some + R"(\s*>\s*)" + length) &&
             !matches(length + R"(\s*<\s*)" + used + R"(\s*\+\s*)" + some))
        return std::nullopt;
    return names;
}

void add(std::vector<PoolNames>& pools, std::optional<PoolNames> found) {
    if (found && pools.size() < kMaxPools && std::find(pools.begin(), pools.end(), *found) == pools.end())
        pools.push_back(std::move(*found));
}

// Converts text with characters of `width` bytes to one byte a character.
std::string narrow(std::string_view bytes, std::size_t width) {
    if (width == 1)
        return std::string(bytes);
    std::string out;
    for (std::size_t i = 0; i + 1 < bytes.size(); i += 2)
        out += bytes[i + 1] == 0 ? bytes[i] : '?';
    return out;
}

std::string widened(std::string_view text, std::size_t width) {
    std::string out;
    for (const char c : text)
        out.append(1, c).append(width - 1, '\0');
    return out;
}

bool part_of_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$'; }

struct Work {
    std::vector<PoolNames> pools;
    std::size_t calls = 0, matches = 0; // so far
};

// Searches the text of one script or memory run, with characters of `width` bytes. Positions count bytes.
class Search {
public:
    Search(std::string_view text, std::size_t width, Work& work) : text_(text), width_(width), work_(&work) {}

    void run() {
        std::set<std::string> aliases;
        for (const std::string_view name : kCalls) {
            for_each(name, 0, text_.size(), [&](std::size_t at, std::size_t end) {
                look(at, end);
                if (const std::string alias = alias_at(end);
                    !alias.empty() && aliases.size() < kMaxAliases && aliases.insert(alias).second)
                    for_each(alias + "(", end, end + kMaxScript, [&](std::size_t call, std::size_t) {
                        if (const std::string before = piece(call - std::min(call, width_), call);
                            before.empty() || !(part_of_name(before[0]) || before[0] == '.'))
                            look(call, call + alias.size() * width_);
                    });
            });
        }
    }

private:
    template <class Fn>
    void for_each(std::string_view name, std::size_t from, std::size_t to, Fn fn) const {
        const std::string wanted = widened(name, width_);
        const std::string_view text = text_.substr(0, to);
        for (std::size_t at = text.find(wanted, from); at != text.npos && may_go_on();
             at = text.find(wanted, at + wanted.size()))
            fn(at, at + wanted.size());
    }
    bool may_go_on() const { return work_->calls < kMaxCalls && ++work_->matches < kMaxMatches; }
    std::string piece(std::size_t from, std::size_t to) const { return narrow(text_.substr(from, to - from), width_); }
    std::string after(std::size_t end) const { return narrow(text_.substr(end, kAround * width_), width_); }

    // Examines a call of the function whose name is at [at, end).
    void look(std::size_t at, std::size_t end) const {
        const std::string before = piece(at - std::min(at / width_, kAround) * width_, at);
        if (before.find(".length") == before.npos)
            return;
        ++work_->calls;
        add(work_->pools, pool_of_call(before, after(end)));
    }
    // Returns x for: import { randomFillSync as x }, const { randomFillSync: x } = ...
    std::string alias_at(std::size_t end) const {
        static const std::regex alias(R"(^(?:\s+as\s+|\s*:\s*)([A-Za-z_$][\w$]*)\s*[,}])");
        std::smatch found;
        const std::string text = after(end);
        return std::regex_search(text, found, alias) ? found[1].str() : std::string();
    }

    std::string_view text_;
    std::size_t width_;
    Work* work_;
};

} // namespace

std::vector<PoolNames> pools_in_text(std::string_view text) {
    Work work;
    Search(text, 1, work).run();
    return work.pools;
}

std::vector<PoolNames> pools_in_scripts(const MemoryView& memory) {
    Work work;
    for (const Written& run : memory.written()) {
        memory.check_time();
        const std::string_view text(reinterpret_cast<const char*>(run.bytes.data()), run.bytes.size());
        Search(text, 1, work).run();
        Search(text, 2, work).run();
    }
    return work.pools;
}

} // namespace kvmserver::unique
