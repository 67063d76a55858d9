#include "tinykvm/elf/libraries.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/path_text.hpp"
#include "tinykvm/base/text.hpp"
#include "tinykvm/elf/dynamic.hpp"
#include "tinykvm/elf/elf_file.hpp"
#include "tinykvm/elf/ld_cache.hpp"

namespace tinykvm {
namespace {

namespace fs = std::filesystem;

// Limits against hostile files. Real programs stay far below (Chromium needs about 100 libraries).
constexpr std::size_t kMaxObjects = 1024;
constexpr std::size_t kMaxFolders = 64;
constexpr std::size_t kMaxMissing = 1024;
constexpr std::size_t kMaxPathText = 4096;  // of one path
constexpr std::size_t kMaxReadings = 16;    // results of one path with tokens such as $LIB
constexpr std::size_t kMaxExpansions = 512; // steps to expand the tokens of one path
constexpr std::size_t kMaxConfigBytes = 64 << 10;

// Variants for CPUs that glibc (2.33 and newer) looks for in subfolders of each folder, before the folder itself.
constexpr std::array<std::string_view, 4> kVariants = {"glibc-hwcaps/x86-64-v4/", "glibc-hwcaps/x86-64-v3/",
                                                       "glibc-hwcaps/x86-64-v2/", ""};

std::vector<std::string> split(std::string_view text, std::string_view separators, bool keep_empty) {
    std::vector<std::string> parts;
    while (true) {
        const std::size_t end = text.find_first_of(separators);
        const std::string_view part = text.substr(0, end);
        if (keep_empty || !part.empty())
            parts.emplace_back(part);
        if (end == text.npos || parts.size() >= kMaxFolders)
            return parts;
        text.remove_prefix(end + 1);
    }
}

std::string read_small_file(const std::string& path) {
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!fd)
        return {};
    const FileSource source(fd.get(), path);
    std::string text(std::min<std::uint64_t>(source.size(), kMaxConfigBytes), '\0');
    return source.read(0, std::as_writable_bytes(std::span(text))) ? text : std::string();
}

struct Object {
    std::string path;
    std::string origin;
    DynamicInfo info;
    std::size_t loader = 0; // index of the object that first needed it; the program's own is 0
};

// Follows _dl_map_object of ld-linux (glibc elf/dl-load.c) and load_library of musl (ldso/dynlink.c), without mapping
// anything.
class Finder {
public:
    Finder(const std::string& program, const LibrarySearch& search) : program_(program), search_(search) {
        cwd_ = search.cwd.empty() ? fs::current_path().string() : search.cwd;
    }

    LibraryList run() {
        const OpenElf open = open_elf(program_);
        if (open.elf.interpreter.empty())
            return {};
        auto info = read_dynamic(FileSource(open.fd.get(), program_), open.elf);
        if (!info)
            throw UserError(ExitCode::failure,
                            printable(program_, 4096) + ": is damaged: its dynamic section is invalid");
        std::error_code error;
        const fs::path canonical = fs::canonical(program_, error);
        objects_.push_back({absolute(program_), canonical.parent_path().string(), std::move(*info), 0});
        take_interpreter(open.elf.interpreter);
        take_preloads();
        // Breadth first, as the interpreters do: objects_ grows while it is walked.
        for (std::size_t i = 0; i < objects_.size(); ++i) {
            const std::vector<std::string> needed = objects_[i].info.needed;
            for (const std::string& name : needed)
                if (!take(name, i) && list_.missing.size() < kMaxMissing)
                    list_.missing.push_back({brief(name), objects_[i].path});
        }
        return std::move(list_);
    }

private:
    std::string absolute(const std::string& path) const { return join_path(cwd_, path); }

    bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

    void note_configuration(const std::string& path) {
        if (exists(path))
            list_.configuration.push_back(path);
    }

    void take_interpreter(const std::string& path) {
        musl_ = fs::path(path).filename().string().starts_with("ld-musl");
        std::error_code error;
        const fs::path canonical = fs::canonical(path, error);
        if (error) {
            list_.missing.push_back({brief(path), objects_[0].path});
        } else {
            list_.found.push_back({path, canonical.string()});
            known_.insert(path);
            // A library may need the interpreter by its name: it is loaded already.
            known_.insert(fs::path(path).filename().string());
            loaded_.insert(canonical.string());
        }
        if (musl_) {
            // In musl one file is both interpreter and libc (ldso/dynlink.c, "reserved" names).
            for (const char* name : {"libc.so", "libc.musl-x86_64.so.1", "libpthread.so", "librt.so", "libm.so",
                                     "libdl.so", "libutil.so", "libxnet.so"})
                known_.insert(name);
            note_configuration(search_.musl_path_file);
            defaults_ = split(read_small_file(search_.musl_path_file), ":\n", false);
            if (defaults_.empty())
                defaults_ = {"/lib", "/usr/local/lib", "/usr/lib"};
        } else {
            note_configuration(search_.cache);
            cache_ = LdCache::from_file(search_.cache);
            defaults_ = search_.folders;
        }
        library_path_ = split(search_.library_path, ":;", true);
        if (search_.library_path.empty())
            library_path_.clear();
    }

    // The interpreter only warns about a preload that it does not find, so it does not count as missing.
    void take_preloads() {
        for (const std::string& name : split(search_.preload, " :", false))
            take(name, 0);
        if (musl_)
            return;
        note_configuration(search_.preload_file);
        for (const std::string& name : split(read_small_file(search_.preload_file), " :\t\n", false))
            take(name, 0);
    }

    // Expands $ORIGIN, $LIB and $PLATFORM, with or without braces, to every value that some interpreter may choose.
    static std::vector<std::string> expand(const std::string& text, const std::string& origin) {
        if (text.size() <= kMaxPathText && text.find('$') == text.npos)
            return {text};
        const std::vector<std::pair<std::string_view, std::vector<std::string>>> tokens = {
            {"ORIGIN", {origin}},
            {"LIB", {"lib/x86_64-linux-gnu", "lib64", "lib"}},
            {"PLATFORM", {"x86_64", "haswell"}},
        };
        std::vector<std::string> done;
        std::vector<std::pair<std::string, std::size_t>> open = {{text, 0}}; // text, expanded so far
        for (std::size_t step = 0; step < kMaxExpansions && !open.empty() && done.size() < kMaxReadings; ++step) {
            auto [value, from] = std::move(open.back());
            open.pop_back();
            if (value.size() > kMaxPathText)
                continue;
            const std::size_t dollar = value.find('$', from);
            if (dollar == value.npos) {
                done.push_back(std::move(value));
                continue;
            }
            bool known = false;
            for (const auto& [name, readings] : tokens)
                for (const std::string& form : {std::string("$") += name, (std::string("${") += name) + "}"}) {
                    if (known || value.compare(dollar, form.size(), form) != 0)
                        continue;
                    known = true;
                    for (auto r = readings.rbegin(); r != readings.rend(); ++r)
                        open.emplace_back(std::string(value).replace(dollar, form.size(), *r), dollar + r->size());
                }
            if (!known)
                open.emplace_back(std::move(value), dollar + 1);
        }
        return done;
    }

    // True when `name` is loaded already or could be found for the object at `for_object`.
    bool take(const std::string& name, std::size_t for_object) {
        if (known_.contains(name))
            return true;
        std::vector<std::string> paths;
        if (name.find('/') != name.npos) {
            for (const std::string& path : expand(name, objects_[for_object].origin))
                if (load(absolute(path), for_object))
                    paths.push_back(path);
        } else {
            paths = search_for(name, for_object);
        }
        if (paths.empty())
            return false;
        known_.insert(name);
        return true;
    }

    std::vector<std::string> search_for(const std::string& name, std::size_t for_object) {
        std::vector<std::string> found;
        const auto in_path = [&](const std::string& path, std::size_t owner) {
            if (path.empty() || !found.empty())
                return;
            for (const std::string& item : split(path, ":", true))
                for (const std::string& folder : expand(item, objects_[owner].origin))
                    if (found.empty())
                        found = search_folder(folder, name, for_object);
        };
        const auto in_library_path = [&] {
            for (const std::string& item : library_path_)
                for (const std::string& folder : expand(item, objects_[0].origin))
                    if (found.empty())
                        found = search_folder(folder, name, for_object);
        };
        if (musl_) {
            in_library_path();
            for (std::size_t i = for_object;; i = objects_[i].loader) {
                const DynamicInfo& by = objects_[i].info;
                in_path(by.runpath.empty() ? by.rpath : by.runpath, i);
                if (i == 0)
                    break;
            }
        } else {
            if (objects_[for_object].info.runpath.empty())
                for (std::size_t i = for_object;; i = objects_[i].loader) {
                    if (objects_[i].info.runpath.empty())
                        in_path(objects_[i].info.rpath, i);
                    if (i == 0)
                        break;
                }
            in_library_path();
            in_path(objects_[for_object].info.runpath, for_object);
        }
        if (!found.empty() || (objects_[for_object].info.no_default_folders && !musl_))
            return found;
        for (const std::string& path : cache_.find(name))
            if (load(path, for_object))
                found.push_back(path);
        for (const std::string& folder : defaults_)
            if (found.empty())
                found = search_folder(folder, name, for_object);
        return found;
    }

    std::vector<std::string> search_folder(const std::string& folder, const std::string& name, std::size_t for_object) {
        std::vector<std::string> found;
        const std::string in = absolute(folder.empty() ? "." : folder);
        auto [at, fresh] = folder_exists_.try_emplace(in, false);
        if (fresh) {
            std::error_code error;
            at->second = fs::is_directory(in, error);
        }
        if (!at->second)
            return found;
        for (const std::string_view variant : kVariants) {
            std::string path = in + "/";
            path += variant;
            path += name;
            if (load(path, for_object))
                found.push_back(std::move(path));
        }
        return found;
    }

    // Adds the file to the list and to the objects to be walked. False when the interpreter would not accept it.
    bool load(const std::string& path, std::size_t for_object) {
        if (!exists(path))
            return false;
        std::error_code error;
        const std::string canonical = fs::canonical(path, error).string();
        if (error)
            return false;
        const auto add_path = [&] {
            if (listed_.insert(path).second)
                list_.found.push_back({path, canonical});
            return true;
        };
        if (loaded_.contains(canonical))
            return add_path();
        if (objects_.size() >= kMaxObjects)
            return false;
        try {
            const OpenElf open = open_elf(path, ElfUse::library);
            auto info = read_dynamic(FileSource(open.fd.get(), path), open.elf);
            if (!info)
                return false;
            if (!info->soname.empty())
                known_.insert(info->soname);
            loaded_.insert(canonical);
            objects_.push_back({path, fs::path(path).parent_path().string(), std::move(*info), for_object});
            return add_path();
        } catch (const UserError&) {
            return false; // for another CPU, or not a library: the search continues
        } catch (const HostError&) {
            return false;
        }
    }

    const std::string program_;
    const LibrarySearch& search_;
    std::string cwd_;
    bool musl_ = false;
    LdCache cache_;
    std::vector<std::string> defaults_, library_path_;
    std::vector<Object> objects_;  // the program first
    std::set<std::string> known_;  // names that need no more search: found before, or a DT_SONAME
    std::set<std::string> loaded_; // canonical paths
    std::set<std::string> listed_; // paths in list_.found
    std::map<std::string, bool> folder_exists_;
    LibraryList list_;
};

} // namespace

LibraryList find_libraries(const std::string& program, const LibrarySearch& search) {
    return Finder(program, search).run();
}

void require_libraries(const std::string& program, const LibraryList& list) {
    if (list.missing.empty())
        return;
    const MissingLibrary& first = list.missing.front();
    const std::string more = list.missing.size() > 1 ? fmt::format(" and {} more", list.missing.size() - 1) : "";
    const std::string shown = printable(program, 4096), needed_by = printable(first.needed_by, 4096);
    if (first.name.starts_with('/'))
        throw UserError(ExitCode::not_found,
                        fmt::format("{}: missing {}{} (needed by {}); install it", shown, first.name, more, needed_by));
    throw UserError(
        ExitCode::not_found,
        fmt::format("{}: missing library {}{} (needed by {}); install it or set LD_LIBRARY_PATH to its folder", shown,
                    first.name, more, needed_by));
}

} // namespace tinykvm
