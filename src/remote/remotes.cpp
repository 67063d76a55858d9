#include "src/remote/remotes.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <span>

#include "src/common/environment.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/unique_fd.hpp"
#include "tinykvm/base/write.hpp"

namespace kvmserver::remote {
namespace {

using tinykvm::ExitCode;
using tinykvm::UniqueFd;
using tinykvm::UserError;

constexpr std::size_t kMax = 1u << 20;

// Returns nothing if the file does not exist.
std::optional<std::string> read_private(const std::filesystem::path& file) {
    const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd && errno == ENOENT)
        return std::nullopt;
    struct stat facts {};
    if (!fd || ::fstat(fd.get(), &facts) != 0)
        tinykvm::throw_errno("open " + file.string());
    if (facts.st_uid != ::geteuid() && facts.st_uid != 0)
        throw UserError(ExitCode::not_permitted, fmt::format("{}: it is uid {}'s and must be yours: chown {} {}",
                                                             file.string(), facts.st_uid, ::geteuid(), file.string()));
    if ((facts.st_mode & 077) != 0)
        throw UserError(ExitCode::not_permitted,
                        fmt::format("{}: others may read it: chmod 600 {}", file.string(), file.string()));
    std::string text(kMax, '\0');
    const ssize_t count = ::read(fd.get(), text.data(), text.size());
    if (count < 0)
        tinykvm::throw_errno("read " + file.string());
    text.resize(static_cast<std::size_t>(count));
    return text;
}

std::string without_slash(std::string url) {
    while (url.ends_with('/'))
        url.pop_back();
    return url;
}

std::map<std::string, Remote> read_remotes(const std::filesystem::path& file) {
    std::map<std::string, Remote> all;
    const auto text = read_private(file);
    if (!text)
        return all;
    try {
        const nlohmann::json kept = nlohmann::json::parse(*text);
        for (const auto& [name, entry] : kept.at("remotes").items())
            all[name] = {entry.at("url"), entry.value("token", ""), entry.value("ca", "")};
    } catch (const nlohmann::json::exception&) {
        throw UserError(ExitCode::usage,
                        fmt::format("{}: it is not a list of remotes: remove it and log in again", file.string()));
    }
    return all;
}

std::filesystem::path folder_of(const std::filesystem::path& file) {
    return file.has_parent_path() ? file.parent_path() : ".";
}

// Takes a lock for changing the file. The lock is a separate file, since every change replaces the file itself.
UniqueFd lock_beside(const std::filesystem::path& file) {
    std::filesystem::create_directories(folder_of(file));
    const std::string name = file.string() + ".lock";
    UniqueFd fd(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd)
        tinykvm::throw_errno("open " + name);
    while (::flock(fd.get(), LOCK_EX) != 0)
        if (errno != EINTR)
            tinykvm::throw_errno("lock " + name);
    return fd;
}

} // namespace

std::filesystem::path Remotes::default_file() {
    if (const std::string file = environment_variable("KVMSERVER_REMOTES"); !file.empty())
        return file;
    if (const std::string config = environment_variable("XDG_CONFIG_HOME"); config.starts_with('/'))
        return std::filesystem::path(config) / "kvmserver/remotes.json";
    if (const std::string home = environment_variable("HOME"); !home.empty())
        return std::filesystem::path(home) / ".config/kvmserver/remotes.json";
    throw UserError(ExitCode::usage, "neither $HOME nor $KVMSERVER_REMOTES is set: where are remotes kept?");
}

Remotes::Remotes(std::filesystem::path file) : file_(std::move(file)), all_(read_remotes(file_)) {}

std::optional<Remote> Remotes::find(const std::string& name_or_url) const {
    if (const auto at = all_.find(name_or_url); at != all_.end())
        return at->second;
    for (const auto& [name, remote] : all_)
        if (without_slash(remote.url) == without_slash(name_or_url))
            return remote;
    return std::nullopt;
}

void Remotes::set(const std::string& name, const Remote& remote) {
    const UniqueFd lock = lock_beside(file_);
    all_ = read_remotes(file_);
    all_[name] = remote;
    save();
}

bool Remotes::remove(const std::string& name) {
    if (!read_remotes(file_).contains(name)) // if not, even the folder for the lock may be missing
        return false;
    const UniqueFd lock = lock_beside(file_);
    all_ = read_remotes(file_);
    if (all_.erase(name) == 0)
        return false;
    save();
    return true;
}

void Remotes::save() const {
    auto object = nlohmann::json::object();
    for (const auto& [name, remote] : all_) {
        object[name] = {{"url", remote.url}, {"token", remote.token}};
        if (!remote.ca_file.empty())
            object[name]["ca"] = remote.ca_file;
    }
    const std::string text = nlohmann::json{{"remotes", object}}.dump(2) + "\n";
    const std::string temporary = fmt::format("{}.{}", file_.string(), ::getpid());
    const UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd)
        tinykvm::throw_errno("write " + temporary);
    try {
        tinykvm::write_all(fd.get(), std::as_bytes(std::span(text)), temporary);
        if (::fchmod(fd.get(), 0600) != 0 || ::fsync(fd.get()) != 0 || ::rename(temporary.c_str(), file_.c_str()) != 0)
            tinykvm::throw_errno("write " + file_.string());
    } catch (...) {
        ::unlink(temporary.c_str());
        throw;
    }
    const UniqueFd folder(::open(folder_of(file_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder || ::fsync(folder.get()) != 0) // makes the rename durable
        tinykvm::throw_errno("sync " + folder_of(file_).string());
}

std::string token_from_file(const std::filesystem::path& file) {
    auto text = read_private(file);
    if (!text)
        throw UserError(ExitCode::not_found, fmt::format("{}: there is no such file", file.string()));
    while (!text->empty() && (text->back() == '\n' || text->back() == '\r' || text->back() == ' '))
        text->pop_back();
    if (text->empty() || text->find_first_of("\r\n") != text->npos)
        throw UserError(ExitCode::usage, fmt::format("{}: it must hold one token on one line", file.string()));
    return *text;
}

} // namespace kvmserver::remote
