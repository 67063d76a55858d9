#include "src/daemon/control_groups.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <iterator>
#include <optional>
#include <sstream>
#include <string_view>
#include <system_error>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/read.hpp"

namespace kvmserver::daemon {

using namespace tinykvm;
namespace fs = std::filesystem;

namespace {

constexpr const char* kDaemons = "kvmserver-daemon"; // the leaf that daemons are in
constexpr std::string_view kFunction = "function-";  // function-DAEMON-NUMBER
constexpr std::array<std::string_view, 4> kControllers = {"memory", "pids", "cpu", "io"};
constexpr const char* kHow = "start it in a group of its own: the unit does, or systemd-run --scope -p Delegate=yes";

// Returns "" if the file cannot be read.
std::string text_of(const fs::path& file) {
    const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd)
        return {};
    try {
        return read_text(fd.get(), file.string());
    } catch (const HostError&) {
        return {};
    }
}

// Sets errno on failure. These files take a value in a single write.
bool put(const fs::path& file, std::string_view value) {
    const UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CLOEXEC));
    return fd && ::write(fd.get(), value.data(), value.size()) == static_cast<ssize_t>(value.size());
}

std::vector<std::string> words_of(const std::string& text) {
    std::istringstream stream(text);
    return {std::istream_iterator<std::string>(stream), {}};
}

bool has(const std::vector<std::string>& words, std::string_view word) {
    return std::ranges::find(words, word) != words.end();
}

struct Found {
    fs::path folder;
    std::string why; // reason if there is none
};

// The folder of this process's group: the mount point of cgroup2 (/proc/self/mountinfo, proc(5)) plus the path in
// /proc/self/cgroup (cgroups(7)).
Found own_folder() {
    std::string path;
    std::istringstream groups(text_of("/proc/self/cgroup"));
    for (std::string line; std::getline(groups, line);)
        if (line.starts_with("0::"))
            path = line.substr(3);
    if (path.empty())
        return {{}, "no cgroup v2 in this kernel"};
    std::istringstream mounts(text_of("/proc/self/mountinfo"));
    for (std::string line; std::getline(mounts, line);) {
        const auto words = words_of(line);
        const auto dash = std::ranges::find(words, "-");
        if (words.size() < 6 || words.end() - dash < 2 || dash[1] != "cgroup2")
            continue;
        const std::string& root = words[3]; // the part of the hierarchy that is mounted at words[4]
        if (root != "/" && path != root && !path.starts_with(root + "/"))
            continue;
        const std::string beneath = root == "/" ? path : path.substr(root.size());
        if (beneath.starts_with("/.."))
            return {{}, "its control group is not to be seen here"};
        fs::path folder(words[4]);
        folder += beneath == "/" ? "" : beneath;
        if (folder.filename() == kDaemons) // left by the daemon that hands over to this one
            folder = folder.parent_path();
        return {folder, ""};
    }
    return {{}, "cgroup2 is not mounted"};
}

std::string without(const std::vector<std::string>& controllers, const fs::path& folder) {
    return controllers.empty() ? "" : fmt::format("no {} in {}", fmt::join(controllers, ", "), folder.string());
}

// Controllers that the group does not have.
std::vector<std::string> lacking(const fs::path& folder) {
    const auto there = words_of(text_of(folder / "cgroup.controllers"));
    std::vector<std::string> lack;
    for (const std::string_view controller : kControllers)
        if (!has(there, controller))
            lack.emplace_back(controller);
    return lack;
}

// The number of other processes in the group.
std::size_t others_in(const fs::path& folder) {
    const auto members = words_of(text_of(folder / "cgroup.procs"));
    return members.size() - static_cast<std::size_t>(std::ranges::count(members, std::to_string(::getpid())));
}

// Removes groups of daemons that have ended.
void remove_leftovers(const fs::path& folder) {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
        const std::string name = entry.path().filename();
        if (!name.starts_with(kFunction))
            continue;
        pid_t daemon = 0;
        std::from_chars(name.data() + kFunction.size(), name.data() + name.size(), daemon);
        if (daemon > 0 && daemon != ::getpid() && ::kill(daemon, 0) < 0 && errno == ESRCH)
            ::rmdir(entry.path().c_str());
    }
}

} // namespace

ControlGroup::ControlGroup(fs::path folder) : folder_(std::move(folder)) {
    if (::mkdir(folder_.c_str(), 0755) < 0)
        throw_errno("make control group " + folder_.string());
    processes_.reset(::open((folder_ / "cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
    if (!processes_) {
        const int error = errno;
        ::rmdir(folder_.c_str());
        throw HostError(error, "open " + (folder_ / "cgroup.procs").string());
    }
}

ControlGroup::~ControlGroup() { ::rmdir(folder_.c_str()); } // if it fails, the next daemon removes the group

void ControlGroup::limit(const GroupLimits& limits) {
    const auto set = [&](const char* name, std::uint64_t value) {
        // ENOENT: the controller is missing.
        if (value != 0 && !put(folder_ / name, std::to_string(value)) && errno != ENOENT)
            throw_errno(fmt::format("limit {}", (folder_ / name).string()));
    };
    set("memory.max", limits.memory_bytes);
    if (limits.memory_bytes != 0) {
        put(folder_ / "memory.swap.max", "0"); // no swapping either; missing without swap
        put(folder_ / "memory.oom.group", "1");
    }
    set("pids.max", limits.tasks);
    memory_limit_ = limits.memory_bytes;
}

bool ControlGroup::ran_out_of_memory() const {
    std::istringstream events(text_of(folder_ / "memory.events"));
    std::string name;
    std::uint64_t times = 0;
    while (events >> name >> times)
        if (name == "oom_kill" && times != 0)
            return true;
    return false;
}

ControlGroups::ControlGroups(jail::Mode mode) {
    if (mode == jail::Mode::off)
        return;
    prepare();
    if (mode == jail::Mode::strict && !missing_.empty())
        throw UserError(ExitCode::not_permitted,
                        fmt::format("--cgroup=strict: {}; --cgroup=auto does with what there is", missing_));
}

void ControlGroups::prepare() {
    const Found found = own_folder();
    missing_ = found.why;
    if (!missing_.empty())
        return;
    base_ = found.folder;
    auto lack = lacking(base_);
    const auto enable = [&] {
        int error = 0;
        for (const std::string_view controller : kControllers)
            if (!has(lack, controller) && !put(base_ / "cgroup.subtree_control", fmt::format("+{}", controller))) {
                error = errno;
                if (error == EBUSY || error == EACCES || error == EROFS)
                    break;
                lack.emplace_back(controller);
            }
        return error == EBUSY || error == EACCES || error == EROFS ? error : 0;
    };
    int error = enable();
    if (error == EBUSY) { // the group contains processes: move this one into a leaf (only the root group may have both)
        if (const auto others = others_in(base_); others != 0) {
            missing_ = fmt::format("{} other processes are in its control group {}; {}", others, base_.string(), kHow);
            return;
        }
        const fs::path leaf = base_ / kDaemons;
        const bool made = ::mkdir(leaf.c_str(), 0755) == 0 || errno == EEXIST;
        error = made && put(leaf / "cgroup.procs", std::to_string(::getpid())) ? enable() : errno;
    }
    if (error != 0) {
        missing_ = fmt::format("{} cannot be divided: {}; {}", base_.string(), std::strerror(error), kHow);
        return;
    }
    // The daemon must answer while functions are busy; these have 100 each.
    put(base_ / kDaemons / "cpu.weight", "1000");
    remove_leftovers(base_);
    missing_ = without(lack, base_);
    usable_ = lack.size() < kControllers.size();
}

std::string ControlGroups::would_miss() {
    const Found found = own_folder();
    if (!found.why.empty())
        return found.why;
    if (const auto lack = lacking(found.folder); !lack.empty())
        return without(lack, found.folder);
    if (::access((found.folder / "cgroup.subtree_control").c_str(), W_OK) < 0)
        return fmt::format("{} cannot be divided: {}; {}", found.folder.string(), std::strerror(errno), kHow);
    return {};
}

std::unique_ptr<ControlGroup> ControlGroups::make() {
    if (!usable_)
        return nullptr;
    return std::unique_ptr<ControlGroup>(
        new ControlGroup(base_ / fmt::format("{}{}-{}", kFunction, ::getpid(), next_.fetch_add(1))));
}

GroupLimits limits_of_process(std::uint64_t memory, std::uint64_t request_memory, unsigned machines) {
    // kvmserver itself, KVM's memory for a machine, page tables of one machine.
    constexpr std::uint64_t kProcess = 16 << 20;
    constexpr std::uint64_t kMachine = 4 << 20; // for each further machine
    constexpr std::uint64_t kMax = std::uint64_t{1} << 60;
    const std::uint64_t further = machines == 0 ? 0 : machines - 1;
    const std::uint64_t changed = std::min(memory, request_memory);
    GroupLimits limits{.memory_bytes = 0, .tasks = 64 + 16 * std::uint64_t{machines}};
    if (memory < kMax && changed < kMax / 65536 && machines <= 65536)
        limits.memory_bytes = memory + kProcess + further * (changed + kMachine);
    return limits;
}

} // namespace kvmserver::daemon
