#include "src/daemon/memory_watch.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/read.hpp"

namespace kvmserver::daemon {

using tinykvm::UniqueFd;
namespace fs = std::filesystem;

namespace {

// "" if the file cannot be read.
std::string content_of(const fs::path& file) {
    const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
    try {
        return fd ? tinykvm::read_text(fd.get(), file.string()) : "";
    } catch (const tinykvm::HostError&) {
        return "";
    }
}

// The number that the text begins with, after spaces.
std::optional<std::uint64_t> number_in(std::string_view text) {
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() ? std::optional(number) : std::nullopt;
}

// Of the line that begins with that word.
std::optional<std::uint64_t> value_of(std::string_view text, std::string_view word) {
    for (std::size_t at = 0; at < text.size();) {
        const std::string_view line = text.substr(at, text.find('\n', at) - at);
        if (line.starts_with(word))
            return number_in(line.substr(word.size()));
        at += line.size() + 1;
    }
    return std::nullopt;
}

std::optional<std::uint64_t> of_host(const fs::path& proc, std::string_view word) {
    const auto kib = value_of(content_of(proc / "meminfo"), word);
    return kib ? std::optional(*kib << 10) : std::nullopt;
}

std::optional<std::uint64_t> limit_of(const fs::path& group) { return number_in(content_of(group / "memory.max")); }

// The group of this process and those above it that have a limit, the innermost first.
std::vector<fs::path> groups_with_limit(const MemoryPlaces& places) {
    constexpr std::string_view kVersion2 = "0::/";
    const std::string groups = content_of(places.proc / "self/cgroup");
    std::vector<fs::path> found;
    const std::size_t at = groups.starts_with(kVersion2) ? 0 : groups.find("\n0::/");
    if (at == std::string::npos)
        return found;
    const std::size_t begin = groups.find(kVersion2, at) + kVersion2.size();
    fs::path path = fs::path(groups.substr(begin, groups.find('\n', begin) - begin)).relative_path();
    for (;; path = path.parent_path()) {
        if (limit_of(places.groups / path))
            found.push_back(places.groups / path);
        if (path.empty())
            return found;
    }
}

// Nothing if the kernel has no such file, or does not let us.
UniqueFd stalls_in(const fs::path& file) {
    // Anyone may ask for windows of two seconds; shorter ones need CAP_SYS_RESOURCE.
    constexpr char kTrigger[] = "some 100000 2000000";
    UniqueFd fd(::open(file.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    if (fd && ::write(fd.get(), kTrigger, sizeof kTrigger) < 0)
        fd.reset();
    return fd;
}

} // namespace

MemoryWatch::MemoryWatch(std::optional<std::uint64_t> reserve, MemoryPlaces places)
    : places_(std::move(places)), groups_(groups_with_limit(places_)) {
    constexpr std::uint64_t kShare = 20;
    reserve_ = reserve ? *reserve : std::min(total().value_or(0) / kShare, kMostReserve);
    if (reserve_ != 0)
        stalls_ = stalls_in(groups_.empty() ? places_.proc / "pressure/memory" : groups_.front() / "memory.pressure");
}

std::optional<std::uint64_t> MemoryWatch::total() const {
    auto least = of_host(places_.proc, "MemTotal:");
    for (const fs::path& group : groups_)
        if (const auto limit = limit_of(group); limit && (!least || *limit < *least))
            least = limit;
    return least;
}

std::optional<std::uint64_t> MemoryWatch::available() const {
    auto least = of_host(places_.proc, "MemAvailable:");
    for (const fs::path& group : groups_) {
        const auto limit = limit_of(group), used = number_in(content_of(group / "memory.current"));
        if (!limit || !used)
            continue;
        // Pages of files that nobody has used lately can be had at once.
        const std::uint64_t files = value_of(content_of(group / "memory.stat"), "inactive_file ").value_or(0);
        const std::uint64_t taken = *used - std::min(*used, files), left = *limit - std::min(*limit, taken);
        if (!least || left < *least)
            least = left;
    }
    return least;
}

} // namespace kvmserver::daemon
