#include "src/cli/dev/server.hpp"

#include <fmt/format.h>

#include "src/cli/options/config_file.hpp"
#include "src/cli/platform/child.hpp"
#include "src/cli/platform/warmup.hpp"
#include "src/runner/announce.hpp"

namespace kvmserver::cli::dev {
namespace {

using platform::kSelf;
using platform::Manifest;
using Arguments = std::vector<std::string>;

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

// The line of announce(), among those that the program prints itself.
bool is_announcement(const std::string& line) {
    return line.starts_with("Program '") && line.find("' loaded. booted in ") != line.npos;
}

} // namespace

Server::Server(Events& events, const Manifest& manifest, const Plan& plan) : events_(events), plan_(plan) {
    build(manifest);
    boot(manifest);
}

void Server::build(const Manifest& manifest) {
    if (manifest.build_command.empty())
        return;
    if (plan_.told)
        plan_.told->phase("build", manifest.build_command);
    const Arguments words{"/bin/sh", "-c", manifest.build_command};
    const auto task = events_.start(words, manifest.folder.string(), Process::Stdout::stderr_);
    const int status = events_.wait(*task);
    if (plan_.told)
        plan_.told->end_phase(status == 0 ? "done" : "failed");
    if (status != 0)
        throw NotServed(fmt::format("[function.build] command ended with status {}", status));
}

void Server::boot(const Manifest& manifest) {
    const bool has_front = manifest.is_http() && !manifest.kept;
    Arguments words{kSelf, "run", has_front ? "--dev" : "--dev-direct", "-c", manifest.file.string()};
    if (manifest.kept)
        words.insert(words.end(), {"--threads", "1"});
    else if (!has_front)
        words.emplace_back("--ephemeral");
    words.insert(words.end(), {"--jail", plan_.jail, "--listen", fmt::format("fd:{}", plan_.listening)});
    std::vector<int> keep{plan_.listening};
    if (plan_.told) {
        words.insert(words.end(), {fmt::format("--{}", kEventsOption), fmt::to_string(plan_.told->child_fd())});
        keep.push_back(plan_.told->child_fd());
    }
    if (plan_.verbose)
        words.push_back("-v");
    const Arguments warmup = platform::short_warmup_words(manifest);
    words.insert(words.end(), warmup.begin(), warmup.end());
    add_environment(words, manifest);
    words.insert(words.end(), {"--", manifest.program});
    words.insert(words.end(), manifest.args.begin(), manifest.args.end());
    const auto loaded = std::make_shared<bool>(false);
    task_ = events_.start(words, manifest.folder.string(), Process::Stdout::captured, keep,
                          [loaded, drained = drained_](const std::string& line) {
                              if (*loaded ? line != kDrained : !is_announcement(line))
                                  return false;
                              (*loaded ? *drained : *loaded) = true;
                              return true;
                          });
    while (!*loaded) {
        events_.step();
        if (const auto status = task_->process.poll(); status && task_->process.out() < 0)
            throw NotServed("the program does not start", ops::exit_code_of(*status));
    }
}

} // namespace kvmserver::cli::dev
