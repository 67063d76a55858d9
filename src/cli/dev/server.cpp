#include "src/cli/dev/server.hpp"

#include <fmt/format.h>

#include "src/cli/options/config_file.hpp"
#include "src/cli/platform/child.hpp"
#include "src/cli/platform/warmup.hpp"

namespace kvmserver::cli::dev {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using platform::kSelf;
using platform::Manifest;
using Arguments = std::vector<std::string>;

constexpr auto kRestorePatience = 30s;

// Passes the variables on as --env, which replaces the file's env.
void add_environment(Arguments& words, const Manifest& manifest) {
    const ConfigFile config = read_config(manifest.file.string(), machine_options(), false);
    Arguments variables;
    if (const auto given = config.settings.find("env"); given != config.settings.end())
        variables = given->second.values;
    for (const auto& [name, value] : manifest.env)
        variables.push_back(fmt::format("{}={}", name, value));
    for (const std::string& variable : variables) {
        words.push_back("--env");
        words.push_back(variable);
    }
}

} // namespace

Server::Server(Events& events, const Manifest& manifest, const Plan& plan) : events_(events), plan_(plan) {
    try {
        build(manifest);
        save(manifest);
        restore(manifest);
    } catch (...) {
        std::error_code error;
        fs::remove(plan_.snapshot, error);
        throw;
    }
}

Server::~Server() {
    std::error_code error;
    fs::remove(plan_.snapshot, error);
}

void Server::build(const Manifest& manifest) {
    if (manifest.build_command.empty())
        return;
    const Arguments words{"/bin/sh", "-c", manifest.build_command};
    const auto task = events_.start(words, manifest.folder.string(), Process::Stdout::stderr_);
    if (const int status = events_.wait(*task); status != 0)
        throw NotServed(fmt::format("[function.build] command ended with status {}", status));
}

void Server::save(const Manifest& manifest) {
    // Level 1: the snapshot is thrown away at the next change.
    Arguments words{kSelf, "snapshot", "-c",  manifest.file.string(), "-o", plan_.snapshot.string(), "--level",
                    "1",   "--cache",  "none"};
    if (plan_.verbose)
        words.push_back("-v");
    constexpr unsigned kWarmupSeconds = 1; // a person is waiting
    const Arguments warmup = platform::warmup_words(manifest, kWarmupSeconds);
    words.insert(words.end(), warmup.begin(), warmup.end());
    add_environment(words, manifest);
    words.insert(words.end(), {"--", manifest.program});
    words.insert(words.end(), manifest.args.begin(), manifest.args.end());
    const std::string ours = "Snapshot " + plan_.snapshot.string();
    const auto task = events_.start(words, manifest.folder.string(), Process::Stdout::captured, -1,
                                    [ours](const std::string& line) { return line.starts_with(ours); });
    if (const int status = events_.wait(*task); status != 0)
        throw NotServed("the program does not start", ops::exit_code_of(status));
}

void Server::restore(const Manifest& manifest) {
    Arguments words{kSelf,      "snaprun",
                    "--http",   "--cache",
                    "none", // the next change makes copies useless
                    "-c",       manifest.file.string(),
                    "--jail",   plan_.jail,
                    "--listen", fmt::format("fd:{}", plan_.listening)};
    if (plan_.verbose)
        words.push_back("-v");
    words.push_back(plan_.snapshot.string());
    const auto loaded = std::make_shared<bool>(false);
    task_ = events_.start(words, manifest.folder.string(), Process::Stdout::captured, plan_.listening,
                          [loaded](const std::string& line) {
                              if (*loaded || !line.starts_with("Program '"))
                                  return false;
                              *loaded = true;
                              return true;
                          });
    const auto end = Clock::now() + kRestorePatience;
    while (!*loaded) {
        events_.step(end);
        if (const auto status = task_->process.poll(); status && task_->process.out() < 0)
            throw NotServed(fmt::format("the snapshot is not restored: status {}", *status),
                            ops::exit_code_of(*status));
        if (Clock::now() >= end)
            throw NotServed("the snapshot is not restored in time", tinykvm::ExitCode::unreachable);
    }
}

} // namespace kvmserver::cli::dev
