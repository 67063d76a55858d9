// libFuzzer: paths through a small tree with links, rules and a volume, against a model that is too simple to
// be wrong. What the policy opens the model allows, what the model allows it opens, and nothing outside of
// the tree is ever opened.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>
#include <vector>

#include "tests/fuzz/support.hpp"
#include "tests/fuzz/temp_folder.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/path_text.hpp"
#include "tinykvm/linux/policy.hpp"

using namespace tinykvm;
using fuzz::Input;

namespace {

namespace fs = std::filesystem;

const std::string& root() {
    static const struct Place {
        fuzz::TempFolder folder{"path_rules"};
        Place() {
            fuzz::wall_off();
            folder.mount_memory();
        }
    } place;
    return place.folder.path();
}

enum class Kind : std::uint8_t { none, file, folder, link };
struct Node {
    Kind kind = Kind::none;
    std::string target;
};

bool beneath(const std::string& path, const std::string& folder) {
    return folder == "/" || path == folder || path.starts_with(folder + "/");
}
std::string parent_of(const std::string& path) {
    const auto slash = path.rfind('/');
    return slash == 0 ? "/" : path.substr(0, slash);
}
std::string child_of(const std::string& path, const std::string& name) {
    return path == "/" ? "/" + name : path + "/" + name;
}

std::deque<std::string> components(const std::string& path) {
    std::deque<std::string> parts;
    std::istringstream text(path);
    for (std::string part; std::getline(text, part, '/');)
        if (!part.empty() && part != ".")
            parts.push_back(part);
    return parts;
}

struct Found {
    std::string path = "/"; // where it leads, what could not be walked by its text
    bool outside = false;   // leaves what the model knows
    int error = 0;
    Kind kind = Kind::folder;
    bool is_virtual = false; // a folder that only leads to the volume
    std::vector<std::string> links;
};

struct Model {
    std::map<std::string, Node> nodes;     // by host path
    std::string volume_guest, volume_host; // "": none
    struct Rule {
        std::string path;
        Rights rights;
    };
    std::vector<Rule> rules;
    std::vector<std::string> lookups;
    Rights volume_rights = 0;

    std::string host_of(const std::string& guest) const {
        return !volume_guest.empty() && beneath(guest, volume_guest) ? volume_host + guest.substr(volume_guest.size())
                                                                     : guest;
    }
    bool knows(const std::string& guest) const {
        const std::string host = host_of(guest);
        return beneath(host, root()) || beneath(root(), host) ||
               (!volume_guest.empty() && beneath(volume_guest, guest));
    }
    Kind kind_at(const std::string& guest) const {
        const std::string host = host_of(guest);
        if (beneath(root(), host))
            return Kind::folder;
        const auto at = nodes.find(host);
        return at == nodes.end() ? Kind::none : at->second.kind;
    }
    bool leads_to_volume(const std::string& guest) const {
        return !volume_guest.empty() && volume_guest != guest && beneath(volume_guest, guest);
    }
    Found walk(const std::string& path, bool follow) const {
        Found found;
        std::deque<std::string> pending = components(path);
        bool must_be_folder = path.ends_with("/") || path.ends_with("/.") || path.ends_with("/..");
        while (!pending.empty() && found.error == 0) {
            const std::string name = pending.front();
            pending.pop_front();
            found.is_virtual = false;
            if (name == "..") {
                found.path = parent_of(found.path);
                found.is_virtual = kind_at(found.path) == Kind::none && leads_to_volume(found.path);
                continue;
            }
            found.path = child_of(found.path, name);
            if (!knows(found.path)) {
                found.outside = true;
                return found;
            }
            Kind kind = kind_at(found.path);
            if (kind == Kind::none && leads_to_volume(found.path)) {
                kind = Kind::folder;
                found.is_virtual = true;
            }
            const bool last = pending.empty() && !must_be_folder;
            if (kind == Kind::link && (follow || !last)) {
                found.links.push_back(found.path);
                if (found.links.size() > 40) {
                    found.error = ELOOP;
                    break;
                }
                const std::string& target = nodes.at(host_of(found.path)).target;
                if (pending.empty())
                    must_be_folder |= target.ends_with("/") || target.ends_with("/.") || target.ends_with("/..") ||
                                      target == "." || target == "..";
                found.path = target.starts_with("/") ? "/" : parent_of(found.path);
                const auto more = components(target);
                pending.insert(pending.begin(), more.begin(), more.end());
                found.kind = Kind::folder;
                continue;
            }
            found.kind = kind;
            if (kind == Kind::none)
                found.error = ENOENT;
            else if (kind != Kind::folder && !last)
                found.error = ENOTDIR;
        }
        if (!pending.empty()) // what is told of it is decided by its text
            for (const std::string& name : pending)
                found.path = name == ".." ? parent_of(found.path) : child_of(found.path, name);
        if (found.error != 0 && !pending.empty())
            found.kind = Kind::none;
        return found;
    }
    Rights rights_of(const std::string& guest) const {
        Rights rights = 0;
        const bool in_volume = !volume_guest.empty() && beneath(guest, volume_guest);
        if (in_volume)
            rights |= volume_rights;
        for (const Rule& rule : rules)
            if (beneath(guest, rule.path) && (!in_volume || beneath(rule.path, volume_guest)))
                rights |= rule.rights;
        for (const std::string& lookup : lookups)
            if (beneath(lookup, guest))
                rights |= kLookup;
        return rights;
    }
    void add(const std::string& path, Rights rights) {
        const Found found = walk(path, true);
        rules.push_back({found.path, rights});
        lookups.push_back(found.path);
        for (const std::string& link : found.links)
            lookups.push_back(link);
    }
};

std::string any_path(Input& in) {
    static constexpr const char* kNames[] = {"a", "b", "c", "d", "e", "f", "g", "..", ".", "", "a", "b", "c", "other"};
    static constexpr const char* kOutside[] = {"/",         "/etc/passwd", "/proc/self/fd/0", "/proc/self",
                                               "/dev/null", "/tmp/x",      "/dev/shm/x",      "/data",
                                               "/proc/1",   "/var",        "/dev/fd/3",       ".."};
    const unsigned how = in.byte();
    std::string path;
    if (how % 8 < 5)
        path = root();
    else if (how % 8 == 5)
        path = in.one_of(kOutside);
    else if (how % 8 == 6)
        path = "/data";
    for (unsigned n = how / 8 % 8; n > 0; --n)
        path += std::string(path.empty() && how % 8 == 7 ? "" : "/") + in.one_of(kNames);
    return path + (how >= 192 ? "/" : "");
}

// Folders two deep, whose entries are files, folders and links.
void make_tree(Input& in, Model& model) {
    static constexpr const char* kPlaces[] = {"a",   "b",   "c",     "a/a",   "a/b",  "b/a",
                                              "b/b", "b/c", "a/a/a", "a/a/b", "b/b/a"};
    for (const char* place : kPlaces) {
        const std::string path = root() + "/" + place, folder = parent_of(path);
        if (folder != root() && (!model.nodes.contains(folder) || model.nodes[folder].kind != Kind::folder))
            continue;
        Node node{static_cast<Kind>(in.byte() % 4), ""};
        switch (node.kind) {
        case Kind::none: continue;
        case Kind::file: FUZZ_REQUIRE(::close(::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600)) == 0); break;
        case Kind::folder: FUZZ_REQUIRE(::mkdir(path.c_str(), 0700) == 0); break;
        case Kind::link:
            node.target = any_path(in);
            if (node.target.empty() || ::symlink(node.target.c_str(), path.c_str()) != 0)
                continue;
        }
        model.nodes[path] = node;
        if (std::getenv("FUZZ_TELL"))
            std::fprintf(stderr, "%s: %d %s\n", path.c_str(), static_cast<int>(node.kind), node.target.c_str());
    }
}

bool is_free_device(const std::string& path) {
    const auto& devices = SyntheticFiles::free_devices();
    return std::find(devices.begin(), devices.end(), path) != devices.end();
}

// A folder that may be looked up, as the way to files which every guest has.
bool leads_to_made_up(const std::string& path) {
    const auto on_the_way = [&](const std::string& file) { return path != "/" && beneath(file, path); };
    const auto files = SyntheticFiles::file_paths();
    const auto& devices = SyntheticFiles::free_devices();
    return std::any_of(files.begin(), files.end(), on_the_way) ||
           std::any_of(devices.begin(), devices.end(), on_the_way);
}

std::string name_of(int fd) {
    char name[4096];
    const ssize_t n = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), name, sizeof name);
    FUZZ_REQUIRE(n > 0);
    return {name, static_cast<std::size_t>(n)};
}

Rights needed(int flags) {
    if (flags & O_PATH)
        return kLookup;
    const int mode = flags & O_ACCMODE;
    return kLookup | (mode != O_WRONLY ? kRead : 0) | (mode != O_RDONLY || (flags & O_TRUNC) ? kWrite : 0);
}

void check_open(const Policy& policy, Model& model, const std::string& path, int flags) {
    const OpenedPath opened = policy.open(path, flags, 0600, {});
    if (opened.fd && (opened.synthetic || opened.stdio || is_free_device(opened.path)))
        return;
    if (!path.starts_with("/")) {
        FUZZ_REQUIRE(!opened.fd);
        return;
    }
    const bool exclusive = (flags & O_CREAT) && (flags & O_EXCL);
    const Found found = model.walk(path, !(flags & O_NOFOLLOW) && !exclusive);
    const Rights have = model.rights_of(found.path), need = needed(flags);
    if (std::getenv("FUZZ_TELL"))
        std::fprintf(stderr, "open \"%s\" %#o: %s fd %d error %d; model: %s error %d rights %u\n", path.c_str(), flags,
                     opened.path.c_str(), opened.fd.get(), opened.error, found.path.c_str(), found.error, have);
    if ((flags & O_PATH) && leads_to_made_up(opened.path))
        return;
    if (found.outside) { // and back again, perhaps
        FUZZ_REQUIRE(!opened.fd ||
                     (model.knows(opened.path) && name_of(opened.fd.get()) == model.host_of(opened.path)));
        FUZZ_REQUIRE(!opened.fd || (need & ~model.rights_of(opened.path)) == 0);
        return;
    }
    const bool creates = found.error == ENOENT && (flags & O_CREAT);
    if (opened.fd) {
        const std::string host = model.host_of(found.path);
        FUZZ_REQUIRE(name_of(opened.fd.get()) == host);
        FUZZ_REQUIRE(opened.path == found.path);
        FUZZ_REQUIRE(beneath(host, root()) || ((flags & O_PATH) && beneath(root(), host)));
        FUZZ_REQUIRE((need & ~have) == 0);
        FUZZ_REQUIRE(found.error == 0 || (creates && (have & kChange)));
        FUZZ_REQUIRE(!found.is_virtual); // nothing is made in its place
        if (creates)
            model.nodes[host] = {Kind::file, ""};
        return;
    }
    FUZZ_REQUIRE(opened.error > 0);
    if (!(have & kLookup)) { // a denied place tells nothing
        const bool change = (flags & O_CREAT) || (need & kWrite);
        FUZZ_REQUIRE(opened.error == (change ? EACCES : ENOENT));
    }
    const bool plain = !(flags & (O_CREAT | O_TRUNC | O_DIRECTORY)) && found.error == 0 && !found.is_virtual;
    if (plain && (need & ~have) == 0)
        FUZZ_REQUIRE(found.kind == Kind::link || (found.kind == Kind::folder && (need & kWrite)) ||
                     (path.ends_with("/") && found.kind == Kind::file));
}

void check_place(const Policy& policy, const Model& model, const std::string& path, bool follow) {
    const OpenedPlace place = policy.place(path, follow, {});
    if (!place.folder)
        return;
    const Found found = model.walk(path, follow);
    FUZZ_REQUIRE(path.starts_with("/") && (model.rights_of(place.path) & kChange) != 0);
    FUZZ_REQUIRE(name_of(place.folder.get()) == model.host_of(parent_of(place.path)));
    FUZZ_REQUIRE(beneath(model.host_of(place.path), root()));
    FUZZ_REQUIRE(found.outside || place.path == found.path);
    FUZZ_REQUIRE(found.outside || place.exists == (found.error == 0 && place.visible));
    FUZZ_REQUIRE(place.name.find('/') == std::string::npos && !place.name.empty() && place.name != "..");
}

void check_rules(Input& in) {
    PathRules rules;
    Model model;
    for (unsigned n = in.below(4); n > 0; --n) {
        const std::string path = join_parts(cut_path(any_path(in)).parts);
        const unsigned kind = in.byte();
        if (kind % 3 == 0) {
            rules.add_lookup(path);
        } else {
            rules.add(path, kind % 3 == 1 ? kReadRule : kWriteRule);
            model.rules.push_back({path, kind % 3 == 1 ? kReadRule : kWriteRule});
        }
        model.lookups.push_back(path);
    }
    const std::string path = join_parts(cut_path(any_path(in)).parts);
    FUZZ_REQUIRE(rules.of(path) == model.rights_of(path));
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input in(data, size);
    check_rules(in);
    Model model;
    for (const auto& entry : fs::directory_iterator(root()))
        fs::remove_all(entry.path());
    make_tree(in, model);
    Permissions permissions;
    const std::string host = root() + "/a";
    const unsigned volume = in.byte();
    const Kind there = model.nodes.contains(host) ? model.nodes[host].kind : Kind::none;
    if (volume % 2 && (there == Kind::folder || there == Kind::file)) {
        const std::string guest = volume % 4 == 1 ? "/data" : root() + (volume % 8 == 3 ? "/b/v" : "/b");
        permissions.volumes.push_back({host, guest, true, volume >= 128, false});
        const Found at = model.walk(guest, true);
        if (guest != "/data" && (at.outside || (at.error != 0 && at.error != ENOENT) || beneath(root(), at.path)))
            return 0; // mounted where the model sees nothing, behind a file, or over the whole tree
        model.volume_guest = at.path;
        for (const std::string& link : at.links)
            model.lookups.push_back(link);
        model.volume_host = host;
        model.volume_rights = kLookup | kRead | (volume >= 128 ? kWrite | kChange : 0);
        model.lookups.push_back(model.volume_guest);
    }
    for (unsigned n = in.below(4); n > 0; --n) {
        const std::string path = any_path(in);
        const bool write = in.byte() % 2;
        if (!path.starts_with("/") || model.walk(path, true).outside)
            continue; // gives what the model knows nothing of
        if (!beneath(model.host_of(model.walk(path, true).path), root()))
            continue; // and a folder above the tree
        (write ? permissions.write : permissions.read).push_back(path);
    }
    for (const std::string& path : permissions.read) // in the order of Policy's constructor: all walk the same tree
        model.add(path, kReadRule);
    for (const std::string& path : permissions.write)
        model.add(path, kWriteRule);
    ProgramFacts facts;
    facts.cwd = root();
    facts.program = root() + "/program";
    model.lookups.push_back(root());
    std::optional<Policy> policy;
    try {
        policy.emplace(permissions, facts);
    } catch (const UserError&) { // a volume that is not there any more
        return 0;
    }
    for (unsigned n = 1 + in.below(6); n > 0; --n) {
        static constexpr int kFlags[] = {O_RDONLY,
                                         O_WRONLY,
                                         O_RDWR,
                                         O_PATH,
                                         O_PATH | O_NOFOLLOW,
                                         O_RDONLY | O_NOFOLLOW,
                                         O_RDONLY | O_DIRECTORY,
                                         O_RDWR | O_CREAT,
                                         O_RDWR | O_CREAT | O_EXCL,
                                         O_WRONLY | O_TRUNC,
                                         O_WRONLY | O_CREAT | O_TRUNC,
                                         O_RDONLY | O_CREAT};
        const std::string path = any_path(in);
        const unsigned how = in.byte();
        if (how >= 224)
            check_place(*policy, model, path, how % 2);
        else
            check_open(*policy, model, path, kFlags[how % std::size(kFlags)]);
    }
    return 0;
}
