// Runs a command line with actions that only note what they were told.
#pragma once
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <unistd.h>

#include "src/cli/command.hpp"

namespace kvmserver::cli {

struct Outcome {
    int code = -1;
    std::string out, err;
    std::string action; // "run", "snapshot", "snaprun" or ""
    Options options;    // what the action got
};

inline constexpr unsigned kTestCpus = 6;
inline constexpr int kActionCode = 42; // a program's exit status, passed on

inline Outcome kvmserver_main(const std::vector<std::string>& words) {
    Outcome outcome;
    const auto action = [&](const char* name) {
        return [&outcome, name](const Options& options) {
            outcome.action = name;
            outcome.options = options;
            return kActionCode;
        };
    };
    const Command commands[] = {run_command(action("run")),
                                snapshot_command(action("snapshot")),
                                snaprun_command(action("snaprun")),
                                doctor_command("/nonexistent/kvm"),
                                completion_command(),
                                version_command()};
    std::ostringstream out, err;
    outcome.code = run_cli(commands, words,
                           {.out = out, .err = err, .folder = std::filesystem::current_path(), .cpus = kTestCpus});
    outcome.out = out.str();
    outcome.err = err.str();
    return outcome;
}

// "a b 'c d'" without the quoting: words cut at spaces.
inline std::vector<std::string> words(const std::string& line) {
    std::istringstream stream(line);
    std::vector<std::string> result;
    for (std::string word; stream >> word;)
        result.push_back(word);
    return result;
}

inline Outcome kvmserver_line(const std::string& line) { return kvmserver_main(words(line)); }

// A fresh current folder for the time of a test.
class Folder {
public:
    Folder() : before_(std::filesystem::current_path()) {
        std::string name = std::filesystem::temp_directory_path() / "kvmserver-cli-XXXXXX";
        path_ = std::filesystem::canonical(::mkdtemp(name.data()));
        std::filesystem::current_path(path_);
    }
    ~Folder() {
        std::filesystem::current_path(before_);
        std::filesystem::remove_all(path_);
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    std::string path(const std::string& name = "") const { return name.empty() ? path_ : path_ / name; }
    void write(const std::string& name, const std::string& text) const { std::ofstream(path_ / name) << text; }

private:
    std::filesystem::path before_, path_;
};

inline bool one_line(const std::string& text) {
    return text.starts_with("kvmserver: ") && text.find('\n') == text.size() - 1;
}

inline bool same(const Verbosity& a, const Verbosity& b) {
    return a.general == b.general && a.syscalls == b.syscalls && a.mmap == b.mmap && a.threads == b.threads &&
           a.pagetables == b.pagetables;
}

inline bool same(const Options& a, const Options& b) {
    return a.program == b.program && a.args == b.args && a.snapshot_file == b.snapshot_file && a.cwd == b.cwd &&
           a.env == b.env && a.threads == b.threads && a.ephemeral == b.ephemeral && a.warmup == b.warmup &&
           a.warmup_auto == b.warmup_auto && a.warmup_seconds == b.warmup_seconds && a.clock == b.clock &&
           a.warmup_requests == b.warmup_requests && a.listen == b.listen && a.http == b.http && a.stats == b.stats &&
           a.level == b.level && a.cpu == b.cpu && a.check_reset == b.check_reset && a.reset == b.reset &&
           a.keep_working_memory == b.keep_working_memory && a.huge_pages == b.huge_pages &&
           a.permissions == b.permissions && a.limits == b.limits && a.given == b.given && same(a.verbose, b.verbose);
}

} // namespace kvmserver::cli
