#include "src/setup/core_dump.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <mutex>

#include <fmt/format.h>

#include "src/setup/report.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/debug/core_file.hpp"
#include "tinykvm/machine/debug_target.hpp"

namespace kvmserver {

using namespace tinykvm;

namespace {

constexpr std::string_view kSuffix = ".core";

// In UTC, with milliseconds.
std::string time_now() {
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    std::tm parts{};
    ::gmtime_r(&now.tv_sec, &parts);
    return fmt::format("{:04}{:02}{:02}T{:02}{:02}{:02}.{:03}Z", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                       parts.tm_hour, parts.tm_min, parts.tm_sec, now.tv_nsec / 1'000'000);
}

// Removes the file when it goes out of scope, unless it got its name.
class TemporaryFile {
public:
    TemporaryFile(int folder, std::string name)
        : folder_(folder), name_(std::move(name)),
          fd_(::openat(folder, name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600)) {
        if (!fd_)
            throw_errno("create a core file");
    }
    TemporaryFile(const TemporaryFile&) = delete;
    ~TemporaryFile() {
        if (!name_.empty())
            ::unlinkat(folder_, name_.c_str(), 0);
    }
    int fd() const { return fd_.get(); }
    void rename_to(const std::string& name) {
        if (::renameat(folder_, name_.c_str(), folder_, name.c_str()) != 0)
            throw_errno("rename a core file");
        name_.clear();
    }

private:
    int folder_;
    std::string name_;
    UniqueFd fd_;
};

class CoreFolder {
public:
    CoreFolder(std::string path, std::string program)
        : path_(std::move(path)), program_(std::move(program)),
          folder_(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
        if (!folder_ || ::faccessat(folder_.get(), ".", W_OK | X_OK, 0) != 0)
            throw UserError(ExitCode::usage, fmt::format("--core-dump: {}: {}; make the folder, writable for this user",
                                                         path_, std::strerror(errno)));
        for (char& c : program_)
            if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '_' && c != '-')
                c = '_';
    }

    // Failures are reported, not thrown: the machine's end must not depend on them.
    void write(Machine& machine, const debug::Fault& fault) {
        const std::lock_guard lock(mutex_);
        try {
            if (const unsigned count = cores(); count >= kMaxCores) {
                note_line(fmt::format("{}: no core file: {} holds {} already; remove some", program_, path_, count));
                return;
            }
            DebugTarget target(machine);
            const auto threads = target.threads();
            if (threads.empty()) {
                note_line(fmt::format("{}: no core file: its guest kernel is of an older kvmserver; build the "
                                      "snapshot again",
                                      program_));
                return;
            }
            const std::string name = fmt::format("{}-{}-{}{}", program_, threads.front().id, time_now(), kSuffix);
            TemporaryFile file(folder_.get(), "." + name + ".tmp");
            const debug::CoreResult done = debug::write_core(target, fault, file.fd(), kMaxCoreBytes);
            file.rename_to(name);
            note_line(fmt::format("{}: core file {}/{} ({:.1f} MiB{}); gdb {} CORE", program_, path_, name,
                                  static_cast<double>(done.bytes) / (1 << 20),
                                  done.left_out == 0
                                      ? std::string()
                                      : fmt::format(", {} MiB of memory left out, at most {} are written",
                                                    done.left_out >> 20, kMaxCoreBytes >> 20),
                                  target.program()));
        } catch (const std::exception& error) {
            note_line(fmt::format("{}: no core file in {}: {}", program_, path_, error.what()));
        }
    }

private:
    struct Closer {
        void operator()(DIR* folder) const { ::closedir(folder); }
    };
    unsigned cores() const {
        const std::unique_ptr<DIR, Closer> entries(::fdopendir(::openat(folder_.get(), ".", O_RDONLY | O_CLOEXEC)));
        if (!entries)
            throw_errno("list the folder");
        unsigned count = 0;
        while (const dirent* entry = ::readdir(entries.get()))
            count += std::string_view(entry->d_name).ends_with(kSuffix) ? 1 : 0;
        return count;
    }

    std::string path_, program_;
    UniqueFd folder_;
    std::mutex mutex_;
};

} // namespace

std::function<void(Machine&, int, int, std::uint64_t)> core_dumps(const Options& options, const std::string& name) {
    if (options.core_dump.empty())
        return {};
    return [folder = std::make_shared<CoreFolder>(options.core_dump, name)](Machine& machine, int signal, int code,
                                                                            std::uint64_t address) {
        folder->write(machine, {signal, code, address});
    };
}

std::vector<std::string> hidden_folders(const Options& options) {
    std::vector<std::string> folders = options.hidden;
    if (!options.core_dump.empty())
        folders.push_back(options.core_dump);
    return folders;
}

} // namespace kvmserver
