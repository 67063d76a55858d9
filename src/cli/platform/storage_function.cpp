#include "src/cli/platform/storage_function.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <span>
#include <sstream>

#include "src/cli/events/json_events.hpp"
#include "src/cli/machine/storage_words.hpp"
#include "src/cli/options/option_table.hpp"
#include "src/cli/paths.hpp"
#include "src/cli/platform/check_manifest.hpp"
#include "src/cli/platform/platform.hpp"
#include "src/store/functions/names.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/write.hpp"

namespace kvmserver::cli::platform {
namespace {

using nlohmann::json;
using tinykvm::ExitCode;
using tinykvm::UniqueFd;
using tinykvm::UserError;

constexpr std::array<const char*, 2> kRun{"program", "args"};
constexpr std::array<const char*, 2> kScale{"suspend", "concurrency"};
constexpr const char* kDrain = "drain";

bool is_in(const auto& names, std::string_view name) {
    return std::ranges::any_of(names, [&](const char* each) { return name == each; });
}

UniqueFd in_memory(const std::string& text) {
    UniqueFd file(::memfd_create("kvmserver.toml", MFD_CLOEXEC));
    if (!file)
        tinykvm::throw_errno("memfd_create");
    tinykvm::write_all(file.get(), std::as_bytes(std::span(text)), "the manifest of a storage");
    return file;
}

} // namespace

std::vector<std::string> storage_keys(bool with_program) {
    std::vector<std::string> names{"function", "program"};
    if (!with_program)
        return names;
    names.insert(names.end(), {"args", "suspend", "concurrency", kDrain});
    for (const OptionSpec& spec : machine_options())
        if (is_storage_option(spec.name))
            names.emplace_back(spec.name);
    return names;
}

std::string storage_manifest(const toml::table& storage, const std::filesystem::path& folder) {
    toml::table top, run, scale, function;
    function.insert("protocol", "tcp");
    function.insert("listen", toml::array());
    function.insert("ephemeral", false);
    for (const auto& [key, value] : storage) {
        const std::string name(key.str());
        if (is_in(kRun, name))
            run.insert(name, value);
        else if (is_in(kScale, name))
            scale.insert(name, value);
        else if (name == kDrain)
            function.insert(name, value);
        else if (is_storage_option(name))
            top.insert(name, value);
    }
    const auto cwd = top["cwd"].value<std::string>();
    top.insert_or_assign("cwd", cwd ? absolute_path(folder.string(), *cwd) : folder.string());
    top.insert_or_assign("allow-listen", true); // nobody else reaches it there
    if (!scale.empty())
        function.insert("scale", std::move(scale));
    top.insert("run", std::move(run));
    top.insert("function", std::move(function));
    std::ostringstream text;
    text << top << '\n';
    return text.str();
}

StorageFunction::StorageFunction(const Manifest& manifest, const std::string& function)
    : function_(function),
      name_(manifest.storage->function.empty() ? function + "-storage" : manifest.storage->function),
      file_(in_memory(manifest.storage->manifest)) {
    store::check_function_name(name_);
    source_.path = fmt::format("/proc/{}/fd/{}", ::getpid(), file_.get());
    source_.manifest = read_manifest(source_.path);
    source_.manifest->shown = manifest.shown + ": [function.storage]";
    source_.manifest->folder = manifest.folder;
    // What is kept and compared must not tell in which folder the deploy was.
    json kept = json::parse(source_.manifest->json);
    kept.erase("cwd");
    if (manifest.storage->cwd)
        kept["cwd"] = *manifest.storage->cwd;
    source_.manifest->json = kept.dump();
}

json StorageFunction::live_versions(Connection& platform) const {
    try {
        return platform.call("GET", target_of({"functions", name_})).at("live_versions");
    } catch (const UserError& error) {
        if (error.code() != ExitCode::not_found)
            throw;
        return json::array();
    }
}

bool StorageFunction::exists(Connection& platform) const {
    const json live = live_versions(platform);
    for (const json& version : live) {
        const json& function = version.at("manifest").value("function", json::object());
        if (function.value("protocol", "") != "tcp" || function.value("listen", json()) != json::array())
            throw UserError(ExitCode::conflict,
                            fmt::format("{}: {} v{} is live, and is no storage (protocol = \"tcp\", listen = []): give "
                                        "another name in function.storage.function",
                                        source_.manifest->shown, name_, version.at("version").get<std::uint64_t>()));
    }
    return !live.empty();
}

bool StorageFunction::is_live(Connection& platform) const {
    const json live = live_versions(platform);
    return live.size() == 1 && live.front().at("manifest") == json::parse(source_.manifest->json);
}

json StorageFunction::deploy(Connection& platform, const Invocation& invocation, bool anew, Context& context) const {
    const bool quiet = flag(invocation, "quiet");
    const json live = live_versions(platform);
    if (!anew && live.size() == 1 && live.front().at("manifest") == json::parse(source_.manifest->json)) {
        const std::uint64_t version = live.front().at("version").get<std::uint64_t>();
        if (!quiet)
            context.err << fmt::format("kvmserver: {} v{} stays, with what it keeps: [function.storage] is as it was "
                                       "(--new-storage replaces it)\n",
                                       name_, version);
        return {{"name", name_}, {"version", version}, {"deployed", false}};
    }
    check_manifest(*source_.manifest, context);
    if (!quiet)
        context.err << fmt::format("kvmserver: {}, the storage of {}:\n", name_, function_);
    const SnapshotFile file(source_, talk(invocation), context,
                            platform.later().compresses ? Compress::in_a_hurry : Compress::fully);
    json body{{"activate", true}, {"manifest", json::parse(source_.manifest->json)}};
    add_message(invocation, body);
    if (file.hurried())
        body["compress_later"] = true;
    body["snapshot"] = platform.push(file.digested()).snapshot;
    const json done = platform.call("PUT", target_of({"functions", name_}), body);
    const std::uint64_t version = done.at("version").get<std::uint64_t>();
    if (!live.empty())
        warn(context,
             fmt::format("{} v{} replaces {}: what that kept is lost", name_, version, live_text(done.at("before"))));
    else if (!quiet)
        context.err << fmt::format("kvmserver: {} v{} is live, the storage of {}\n", name_, version, function_);
    return {{"name", name_}, {"version", version}, {"deployed", true}};
}

} // namespace kvmserver::cli::platform
