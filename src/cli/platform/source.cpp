#include "src/cli/platform/source.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "src/cli/events/json_events.hpp"
#include "src/cli/options/config_file.hpp"
#include "src/cli/options/option_table.hpp"
#include "src/cli/paths.hpp"
#include "src/cli/platform/child.hpp"
#include "src/cli/platform/held_signals.hpp"
#include "src/cli/platform/warmup.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/elf/stack.hpp"

namespace kvmserver::cli::platform {

class TemporaryFolder {
public:
    TemporaryFolder() : path_((std::filesystem::temp_directory_path() / "kvmserver-deploy-XXXXXX").string()) {
        if (!::mkdtemp(path_.data()))
            tinykvm::throw_errno("mkdtemp " + path_);
    }
    ~TemporaryFolder() { remove(); }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    std::string operator/(const char* name) const { return path_ + '/' + name; }
    void remove() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    void make_again() { // once removed
        if (::mkdir(path_.c_str(), 0700) < 0)
            tinykvm::throw_errno("mkdir " + path_);
    }

private:
    std::string path_;
};

namespace {

using tinykvm::ExitCode;
using tinykvm::UniqueFd;
using tinykvm::UserError;

constexpr const char* kManifest = "kvmserver.toml";

constexpr const char* kMade = "function.snap";
constexpr const char* kEarly = "early.snap";

// Runs a command to its end and returns its status. Its output goes to stderr; if `quiet`, only on failure.
int run(const std::vector<std::string>& argv, const std::string& folder, bool quiet, const HeldSignals& held,
        Context& context) {
    context.err.flush();
    const auto captured = memory_file("kvmserver-output");
    Child child(argv, folder, quiet ? captured.get() : STDERR_FILENO);
    held.wait_readable(child.end_fd().get());
    const int status = child.wait();
    if (quiet && status != 0)
        context.err << text_of(captured.get());
    return status;
}

// Variables to reserve room for in the program's environment: the file's own late-env, [function.env], and secrets,
// whose values must not be in a snapshot.
std::vector<std::string> late_variables(const Manifest& manifest) {
    std::vector<std::string> variables;
    const ConfigFile config = read_config(manifest.file.string(), machine_options(), false, Section::snapshot);
    if (const auto given = config.settings.find("late-env"); given != config.settings.end())
        variables = given->second.values;
    for (const auto& [name, value] : manifest.env)
        if (const std::string variable = fmt::format("{}={}", name, value); variable.size() < tinykvm::kLateEnvBytes)
            variables.push_back(variable); // read_manifest() has warned about longer ones
    for (const std::string& name : manifest.secrets)
        if (!manifest.env.contains(name))
            variables.push_back(name);
    return variables;
}

void build(const Manifest& manifest, bool quiet, const HeldSignals& held, Context& context) {
    if (manifest.build_command.empty())
        return;
    if (context.events)
        context.events->phase("build", manifest.build_command);
    if (const int status =
            run({"/bin/sh", "-c", manifest.build_command}, manifest.folder.string(), quiet, held, context))
        throw UserError(ExitCode::failure,
                        fmt::format("[function.build] command ended with status {}; nothing was stored", status));
    if (context.events)
        context.events->end_phase();
}

std::vector<std::string> snapshot_words(const Manifest& manifest, const std::string& path, bool hurry) {
    std::vector<std::string> words{kSelf, "snapshot", "-c",         manifest.file.string(),
                                   "-o",  path,       "--temporary"}; // it goes into the store and is then deleted
    if (hurry)
        words.emplace_back("--hurry");
    const std::vector<std::string> warmup = warmup_words(manifest);
    words.insert(words.end(), warmup.begin(), warmup.end());
    for (const std::string& variable : late_variables(manifest))
        words.insert(words.end(), {"--late-env", variable});
    return words;
}

UniqueFd opened(const std::string& path) {
    UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file)
        tinykvm::throw_errno("open " + path);
    return file;
}

UniqueFd captured_if(bool quiet) { return quiet ? memory_file("kvmserver-output") : UniqueFd(); }

std::pair<UniqueFd, UniqueFd> socket_pair() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        tinykvm::throw_errno("socketpair");
    return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

} // namespace

Source find_source(const std::string& operand, const Context& context) {
    std::filesystem::path path = absolute_path(context.folder, operand);
    std::error_code error;
    if (std::filesystem::is_directory(path, error)) {
        path /= kManifest;
        if (!std::filesystem::exists(path, error))
            throw UserError(ExitCode::not_found,
                            fmt::format("there is no {} in {}: give a snapshot, a manifest or a folder with one",
                                        kManifest, path.parent_path().string()));
    } else if (!std::filesystem::exists(path, error)) {
        if (error)
            throw UserError(ExitCode::not_permitted, fmt::format("{}: {}", operand, error.message()));
        throw UserError(ExitCode::not_found, fmt::format("{}: there is no such file or folder", operand));
    }
    Source source{path, std::nullopt};
    if (path.extension() == ".toml")
        source.manifest = read_manifest(path);
    return source;
}

// `kvmserver snapshot`, which may write two files: one as soon as the program has booted, and one once it is warmed up.
struct SnapshotFile::Warming {
    Warming(const Manifest& manifest, Talk talk, bool hurry, bool early, const JsonEvents* events)
        : captured(captured_if(talk == Talk::results)) {
        const bool quiet = talk == Talk::results;
        auto [parent_end, child_end] = socket_pair();
        socket = std::move(parent_end);
        auto words = snapshot_words(manifest, folder / kMade, hurry);
        std::vector<int> keep;
        if (early) {
            words.insert(words.end(), {"--early", folder / kEarly, "--parent", fmt::to_string(child_end.get())});
            keep.push_back(child_end.get());
        }
        if (talk == Talk::everything)
            words.emplace_back("-v");
        if (events && !quiet) {
            words.insert(words.end(), {fmt::format("--{}", kEventsOption), fmt::to_string(events->child_fd())});
            keep.push_back(events->child_fd());
        }
        words.insert(words.end(), {"--", manifest.program});
        words.insert(words.end(), manifest.args.begin(), manifest.args.end());
        child.emplace(words, manifest.folder.string(), quiet ? captured.get() : STDERR_FILENO, keep);
    }

    // Whether the early snapshot is there, which comes first; otherwise the process has ended.
    bool early(const HeldSignals& held) {
        held.wait_readable(socket.get());
        char any;
        return ::recv(socket.get(), &any, 1, 0) == 1;
    }

    int wait(const HeldSignals& held, Context& context) {
        held.wait_readable(child->end_fd().get());
        const int status = child->wait();
        if (captured && status != 0)
            context.err << text_of(captured.get());
        return status;
    }

    TemporaryFolder folder;
    UniqueFd captured, socket;
    std::optional<Child> child; // killed before its folder is removed
};

SnapshotFile::SnapshotFile(const Source& source, Talk talk, Context& context, Compress compress, WarmUp warm_up)
    : path_(source.path) {
    if (!source.manifest)
        return;
    const Manifest& manifest = *source.manifest;
    hurried_ =
        compress == Compress::in_a_hurry &&
        !read_config(manifest.file.string(), machine_options(), false, Section::snapshot).settings.contains("level");
    try {
        const HeldSignals held;
        build(manifest, talk == Talk::results, held, context);
        context.err.flush();
        const bool early = warm_up == WarmUp::behind;
        auto warming = std::make_unique<Warming>(manifest, talk, hurried_, early, context.events);
        if (early && warming->early(held)) {
            made_ = opened(warming->folder / kEarly);
            warming->folder.remove(); // so that nothing is left behind if a signal ends this process from now on
            warming_ = std::move(warming);
        } else {
            if (const int status = warming->wait(held, context))
                throw UserError(
                    ops::exit_code_of(status),
                    fmt::format("no snapshot was made (status {}; the reason is above), so nothing was stored; "
                                "`kvmserver dev --watch -v {}` shows each refusal and tries again as you edit",
                                status, manifest.folder.string()));
            made_ = opened(warming->folder / kMade);
        }
    } catch (const Interrupted& interrupted) {
        interrupted.end();
        throw UserError(ExitCode::failure, "interrupted; nothing was stored");
    }
    path_ = fmt::format("/proc/self/fd/{}", made_.get());
}

SnapshotFile::~SnapshotFile() = default;

ops::DigestedFile SnapshotFile::digested() const {
    using Origin = ops::DigestedFile::Origin;
    return {path_, !made_ ? Origin::unknown : hurried_ ? Origin::made_in_a_hurry : Origin::made_now};
}

bool SnapshotFile::warmed(Context& context) {
    const HeldSignals held;
    const std::unique_ptr<Warming> warming = std::move(warming_);
    warming->folder.make_again();
    (void)::send(warming->socket.get(), "", 1, MSG_NOSIGNAL); // if it has ended, wait() tells how
    if (const int status = warming->wait(held, context))
        throw UserError(ops::exit_code_of(status), fmt::format("the warm-up ended with status {}", status));
    const std::string path = warming->folder / kMade;
    if (::access(path.c_str(), F_OK) != 0)
        return false;
    made_ = opened(path);
    path_ = fmt::format("/proc/self/fd/{}", made_.get());
    return true;
}

} // namespace kvmserver::cli::platform
