#include "tinykvm/linux/policy.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "tinykvm/abi/guest_kernel.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/path_text.hpp"
#include "tinykvm/linux/handles.hpp"
#include "tinykvm/linux/policy_walk.hpp"

namespace tinykvm {

static_assert(kOwnPath == abi::kOwnPath);

namespace {

// Resolves links in the part of the path that exists.
std::string real_path(const std::string& path) {
    std::error_code failed;
    const std::filesystem::path real = std::filesystem::weakly_canonical(path, failed);
    return failed ? path : real.native();
}

} // namespace

Policy::Policy(Permissions permissions, ProgramFacts facts, const std::vector<Granted>& granted)
    : permissions_(std::move(permissions)), facts_(std::move(facts)), synthetic_(facts_),
      connect_(permissions_.connect, warnings_), listen_(permissions_.listen, warnings_) {
    for (const std::string& path : permissions_.hidden)
        hidden_.push_back(real_path(path));
    // Ceilings name host paths. Resolve them before volumes are mounted, in which links may lead anywhere.
    for (const Granted& each : granted)
        add_granted(each);
    const std::vector<std::string> mounted = add_volumes();
    if (permissions_.all) {
        rules_.add("/", kWriteRule);
        std::vector<std::string> none;
        connect_ = listen_ = NetRules({NetRule{}}, none);
    }
    for (const std::string& path : permissions_.read)
        add_rule(path, kReadRule);
    if (!permissions_.all || !permissions_.volumes.empty()) // otherwise redundant, and three system calls each
        for (const std::string& path : permissions_.implied_read)
            add_rule(path, kReadRule);
    for (const std::string& path : permissions_.write)
        add_rule(path, kWriteRule);
    for (const NetRule& rule : permissions_.listen)
        if (rule.host.starts_with(kUnixRule)) {
            const std::string name = rule.host.substr(std::string_view(kUnixRule).size());
            if (name.starts_with('/')) // programs remove a stale socket at the path, and set the mode
                add_rule(name, kWriteRule);
            unix_listen_.push_back(name.starts_with('/') ? walk(name, false, {}).path : name);
        }
    for (const std::string& device : SyntheticFiles::free_devices())
        add_everywhere(device, kLookup | kRead | kWrite);
    for (const std::string& path : SyntheticFiles::file_paths())
        add_everywhere(path, 0);
    add_lookup(facts_.cwd);
    choose_own_folders(mounted);
}

// /tmp and /dev/shm are the machine's own, unless permissions give access to the host's folder: by a volume mounted
// there, by naming it, or, if the program is not a function, by making everything writable.
void Policy::choose_own_folders(const std::vector<std::string>& mounted) {
    for (const auto& [path, bit] : {std::pair{"/tmp", abi::kOwnTmp}, std::pair{"/dev/shm", abi::kOwnShm}}) {
        const std::string folder = path;
        const auto here = [&](const std::string& given) { return join_parts(cut_path(given).parts) == folder; };
        const bool named =
            std::any_of(mounted.begin(), mounted.end(), here) ||
            (std::any_of(permissions_.write.begin(), permissions_.write.end(), here) && (rights_of(folder) & kChange));
        const Rights from_above = rights_of(folder + "/any") & rights_of(folder + "/other");
        if (!named && (permissions_.always_own_folders || !(from_above & kChange)))
            own_folders_.push_back({folder, bit, from_above});
    }
    for (const OwnFolder& folder : own_folders_) {
        own_folder_bits_ |= folder.bit;
        if (rights_of(folder.path) != 0)
            own_folder_bits_ |= abi::kOwnFoldersShowHost;
    }
}

std::string Policy::folder_path(const Handle& handle) const {
    if (handle.info.synthetic || !handle.file || is_own(handle.info.path))
        return handle.info.path;
    return tree_.path_now(handle.file->fd(), handle.info.path);
}

bool Policy::is_on_host(const std::string& path) const {
    struct stat info {};
    return ask_about_host_ ? ask_about_host_(path) : ::lstat(path.c_str(), &info) == 0;
}

const Policy::OwnFolder* Policy::own_folder_of(std::string_view path) const {
    for (const OwnFolder& folder : own_folders_)
        if (is_beneath(path, folder.path))
            return &folder;
    return nullptr;
}

bool Policy::is_own(std::string_view path) const {
    const OwnFolder* folder = own_folder_of(path);
    return folder && (path == folder->path || !(rights_of(path) & kLookup));
}

bool Policy::is_own_if_missing(std::string_view path) const {
    const OwnFolder* folder = own_folder_of(path);
    return folder && rights_of(path) == folder->from_above;
}

std::vector<std::string> Policy::add_volumes() {
    std::vector<std::string> mounted;
    // Outer volumes first: inner guest paths can only be made canonical afterwards.
    std::vector<Volume> volumes = permissions_.volumes;
    std::stable_sort(volumes.begin(), volumes.end(),
                     [](const Volume& a, const Volume& b) { return a.guest.size() < b.guest.size(); });
    for (const Volume& volume : volumes) {
        if (!volume.guest.starts_with('/'))
            throw UserError(ExitCode::usage, fmt::format("--volume={}:{}: the guest path must start with '/'",
                                                         volume.host, volume.guest));
        Rights rights = rights_in(volume);
        if (granted_of_volume(join_parts(cut_path(volume.host).parts), rights) == 0 && rights != 0)
            continue; // nothing is granted: do not reveal whether it exists
        const Walk found = walk(volume.guest, true, {});
        if (tree_.is_mount(found.path))
            throw UserError(ExitCode::usage, fmt::format("--volume={}:{}: there is another volume at {}", volume.host,
                                                         volume.guest, found.path));
        rights = granted_of_volume(tree_.mount(volume, found.path), rights);
        if (rights == 0 && rights_in(volume) != 0) { // a link on the host leads out of what is granted
            tree_.unmount(found.path);
            continue;
        }
        rules_.add_volume(found.path, rights);
        for (Ceiling& ceiling : ceilings_) {
            ceiling.rules.drop_beneath(found.path); // these rules concern the host's own files at this path
            ceiling.rules.add_volume(found.path, rights);
        }
        for (const std::string& link : found.links)
            add_everywhere(link, 0);
        mounted.push_back(volume.guest);
    }
    return mounted;
}

void Policy::add_rule(const std::string& path, Rights rights) {
    if (!path.starts_with('/'))
        throw UserError(ExitCode::usage, fmt::format("permission for \"{}\": the path must be absolute", path));
    if (const auto plain = plain_path(path)) {
        rules_.add(*plain, rights);
        return;
    }
    const Walk found = walk(path, true, {});
    rules_.add(found.path, rights);
    for (const std::string& link : found.links)
        rules_.add_lookup(link);
}

// An optimisation: a restored function has dozens of rules, and a walk costs three system calls per component.
std::optional<std::string> Policy::plain_path(const std::string& path) const {
    const PathText text = cut_path(path);
    const std::string joined = join_parts(text.parts);
    const bool special =
        std::any_of(text.parts.begin(), text.parts.end(), [](const std::string& part) { return part == ".."; }) ||
        is_beneath(joined, "/proc") || is_beneath(joined, "/dev") || is_beneath(joined, "/sys");
    if (text.parts.empty() || special)
        return std::nullopt;
    const UniqueFd fd(tree_.open_for_walk(joined));
    struct stat info {};
    if (fd ? ::fstat(fd.get(), &info) == 0 && !S_ISLNK(info.st_mode) : fd.get() == -ENOENT)
        return joined;
    return std::nullopt;
}

void Policy::add_everywhere(const std::string& path, Rights rights) {
    const auto add = [&](PathRules& rules) { rights == 0 ? rules.add_lookup(path) : rules.add(path, rights); };
    add(rules_);
    for (Ceiling& ceiling : ceilings_)
        add(ceiling.rules);
}

void Policy::add_lookup(const std::string& path) {
    const Walk found = walk(path, true, {});
    rules_.add_lookup(found.path);
    for (const std::string& link : found.links)
        rules_.add_lookup(link);
}

int Policy::check(const std::string& path, Rights need, std::string& refused) const {
    const Rights have = rights_of(path);
    const Rights lacking = need & ~have;
    if (lacking == 0)
        return 0;
    const bool change = (need & (kWrite | kChange)) != 0;
    if (const Volume* volume = tree_.volume_of(path); volume && (have & kLookup))
        refused = fmt::format("--volume={}:{}:{} would allow it", volume->host, volume->guest, change ? "rw" : "rx");
    else
        refused = fmt::format("--allow-{}={} would allow it", change ? "write" : "read", path);
    return !(have & kLookup) && !change ? ENOENT : EACCES;
}

bool Policy::may_connect(const sockaddr* address, socklen_t length) const {
    auto target = net_address(address, length);
    if (!target)
        return false;
    // Linux connects to the loopback address when given the wildcard address.
    if (target->is_any()) {
        if (target->is_ipv4())
            target->bytes[12] = 127;
        target->bytes[15] = 1;
    }
    return connect_.allows(*target) && std::ranges::all_of(ceilings_, [&](const Ceiling& ceiling) {
               return (!ceiling.granted.connect || ceiling.connect.covers(*target)) &&
                      !ceiling.deny_connect.covers(*target);
           });
}

// Needs --allow-all: Linux checks no permissions for abstract names, and --allow-connect cannot name them.
bool Policy::may_connect_abstract(const std::string& name) const {
    return permissions_.all && std::ranges::all_of(ceilings_, [&](const Ceiling& ceiling) {
               return !ceiling.granted.connect || ceiling.connect.covers_unix_name(name);
           });
}

bool Policy::may_bind_ephemeral() const {
    const auto some = [](const std::optional<std::vector<NetGrant>>& grants) { return !grants || !grants->empty(); };
    return (!connect_.empty() &&
            std::ranges::all_of(ceilings_, [&](const Ceiling& ceiling) { return some(ceiling.granted.connect); })) ||
           (!listen_.empty() &&
            std::ranges::all_of(ceilings_, [&](const Ceiling& ceiling) { return some(ceiling.granted.listen); }));
}

bool Policy::may_listen(const sockaddr* address, socklen_t length) const {
    if (length > sizeof(sa_family_t) && address->sa_family == AF_UNIX && address->sa_data[0] == '\0') {
        const std::string name = "@" + std::string(address->sa_data + 1, length - sizeof(sa_family_t) - 1);
        return (permissions_.all || std::find(unix_listen_.begin(), unix_listen_.end(), name) != unix_listen_.end()) &&
               std::ranges::all_of(ceilings_, [&](const Ceiling& ceiling) {
                   return !ceiling.granted.listen || ceiling.listen.covers_unix_name(name);
               });
    }
    const auto local = net_address(address, length);
    return local && listen_.allows(*local) && std::ranges::all_of(ceilings_, [&](const Ceiling& ceiling) {
               return !ceiling.granted.listen || ceiling.listen.covers(*local);
           });
}

OpenedPlace Policy::socket_place(std::string_view path, const SelfFacts& self) const {
    OpenedPlace found = place(path, false, self);
    const bool asked =
        permissions_.all || std::any_of(unix_listen_.begin(), unix_listen_.end(), [&](const std::string& rule) {
            return rule.starts_with('/') && is_beneath(found.path, rule);
        });
    const bool allowed = asked && std::ranges::all_of(ceilings_, [&](const Ceiling& ceiling) {
                             if (ceiling.granted.listen)
                                 return ceiling.listen.covers_unix_path(found.path);
                             return !ceiling.has_paths || (ceiling.rules.of(found.path) & kChange) != 0;
                         });
    if (!allowed || found.error == kOwnPath) { // the machine's own folders cannot hold bound sockets
        found.error = EACCES;
        found.refused =
            fmt::format("--allow-listen=unix:{} would allow it", found.path.empty() ? std::string(path) : found.path);
    }
    return found;
}

std::string Policy::net_flag(const char* flag, const sockaddr* address, socklen_t length) {
    if (length > sizeof(sa_family_t) && address->sa_family == AF_UNIX)
        return fmt::format("{}=unix:@{}", flag, std::string(address->sa_data + 1, length - sizeof(sa_family_t) - 1));
    const auto target = net_address(address, length);
    return fmt::format("{}={}", flag, target ? target->text() : "");
}

} // namespace tinykvm
