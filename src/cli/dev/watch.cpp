#include "src/cli/dev/watch.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <functional>
#include <set>
#include <string_view>

#include "tinykvm/base/error.hpp"

namespace kvmserver::cli::dev {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kTick = 2'000'000'000; // two changes within this time may have the same time stamp
constexpr std::uint64_t kHashed = 32 << 20;   // larger files are compared by time and size only

std::int64_t nanoseconds(const timespec& time) { return time.tv_sec * 1'000'000'000 + time.tv_nsec; }

// Folders where builds and package managers put their output.
bool is_output_folder(const std::string& name) {
    constexpr std::array<std::string_view, 7> names{"node_modules", "target", "build",        "dist",
                                                    "__pycache__",  "venv",   "site-packages"};
    return name.starts_with('.') || std::ranges::find(names, name) != names.end();
}

bool is_by_product(const fs::path& file) {
    const std::string name = file.filename().string(), extension = file.extension().string();
    constexpr std::array<std::string_view, 7> extensions{".o", ".a", ".so", ".pyc", ".snap", ".tmp", ".log"};
    const bool editors = name.starts_with('.') || name.ends_with('~') || name == "4913" ||
                         (name.starts_with('#') && name.ends_with('#'));
    return editors || std::ranges::find(extensions, extension) != extensions.end();
}

} // namespace

std::vector<fs::path> differing(const Marks& before, const Marks& after) {
    std::vector<fs::path> paths;
    for (const auto& [path, mark] : after)
        if (const auto at = before.find(path); at == before.end() || at->second.content != mark.content)
            paths.push_back(path);
    for (const auto& [path, mark] : before)
        if (!after.contains(path))
            paths.push_back(path);
    return paths;
}

Watch::Watch(const platform::Manifest& manifest) : inotify_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
    if (!inotify_)
        tinykvm::throw_errno("inotify_init1");
    globs_.emplace_back(manifest.folder, manifest.file.filename().string());
    for (const std::string& pattern : manifest.watch)
        globs_.emplace_back(manifest.folder, pattern);
    if (manifest.watch.empty()) {
        everything_ = true;
        globs_.emplace_back(manifest.folder, "**");
        if (!manifest.build_command.empty()) // then the build makes the program
            program_ = (manifest.folder / manifest.program).lexically_normal();
    }
}

bool Watch::clear() {
    alignas(inotify_event) char events[16384];
    std::uint32_t last = 0;
    for (ssize_t count = 0; (count = ::read(inotify_.get(), events, sizeof(events))) > 0;) {
        for (const char *at = events, *end = events + count; at < end;) {
            const auto* event = reinterpret_cast<const inotify_event*>(at);
            last = event->mask;
            at += sizeof(inotify_event) + event->len;
        }
    }
    return (last & (IN_CLOSE_WRITE | IN_MOVED_TO)) != 0;
}

const Marks& Watch::look() {
    std::set<fs::path> roots;
    for (const Glob& glob : globs_)
        roots.insert(glob.root());
    Marks found;
    for (const fs::path& root : roots)
        walk(root, found);
    marks_ = std::move(found);
    return marks_;
}

bool Watch::watched(const fs::path& file) const {
    if (file == program_ || (everything_ && is_by_product(file)))
        return false;
    return std::ranges::any_of(globs_, [&](const Glob& glob) { return glob.matches(file); });
}

void Watch::watch_folder(const fs::path& folder) {
    constexpr std::uint32_t kWhat = IN_CLOSE_WRITE | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO |
                                    IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;
    if (::inotify_add_watch(inotify_.get(), folder.c_str(), kWhat) >= 0 || errno == ENOENT || errno == ENOTDIR ||
        errno == EACCES) // it is gone, or nothing in it can be read
        return;
    if (errno == ENOSPC)
        throw tinykvm::UserError(tinykvm::ExitCode::failure,
                                 fmt::format("{}: too many folders to watch: narrow [function.build] watch, or raise "
                                             "fs.inotify.max_user_watches",
                                             folder.string()));
    tinykvm::throw_errno("inotify_add_watch " + folder.string());
}

// Adds the watch before it reads the folder, so that changes meanwhile are reported.
void Watch::walk(const fs::path& folder, Marks& found) {
    watch_folder(folder);
    std::error_code error;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
        const fs::path& path = at->path();
        std::error_code gone;
        if (at->is_directory(gone)) {
            if (!at->is_symlink(gone) && !is_output_folder(path.filename().string()))
                walk(path, found);
        } else if (at->is_regular_file(gone) && !found.contains(path) && watched(path)) {
            found[path] = mark_of(path);
        }
    }
}

Mark Watch::mark_of(const fs::path& file) const {
    Mark mark;
    const tinykvm::UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat status {};
    if (!fd || ::fstat(fd.get(), &status) < 0)
        return mark;
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    mark.changed_ns = nanoseconds(status.st_ctim);
    mark.settled = nanoseconds(now) - mark.changed_ns > kTick;
    mark.size = static_cast<std::uint64_t>(status.st_size);
    mark.inode = status.st_ino;
    if (mark.size > kHashed) {
        mark.content = static_cast<std::uint64_t>(mark.changed_ns) ^ mark.size;
        return mark;
    }
    if (const auto known = marks_.find(file); known != marks_.end() && known->second.settled &&
                                              known->second.changed_ns == mark.changed_ns &&
                                              known->second.size == mark.size && known->second.inode == mark.inode) {
        mark.content = known->second.content;
        return mark;
    }
    std::string text(mark.size, '\0');
    std::size_t done = 0;
    while (done < text.size()) {
        const ssize_t count = ::read(fd.get(), text.data() + done, text.size() - done);
        if (count <= 0)
            break;
        done += static_cast<std::size_t>(count);
    }
    text.resize(done);
    mark.content = std::hash<std::string>{}(text);
    return mark;
}

} // namespace kvmserver::cli::dev
