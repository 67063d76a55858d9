#include "src/cli/platform/serve_cluster.hpp"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "src/cli/paths.hpp"
#include "src/cli/version.hpp"
#include "src/cluster/join.hpp"
#include "src/objects/address.hpp"
#include "src/objects/credentials.hpp"
#include "src/store/errors.hpp"
#include "src/store/shared/membership.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::cli {

using tinykvm::ExitCode;
using tinykvm::UserError;

std::string text_of(const Invocation& invocation, std::string_view name, const std::string& fallback) {
    const auto at = invocation.settings.find(name);
    return at == invocation.settings.end() ? fallback : at->second.values.back();
}

SecretFiles secret_files(const Invocation& invocation, const Context& context) {
    const auto at = [&](const char* option) {
        const std::string file = text_of(invocation, option);
        return file.empty() ? file : absolute_path(context.folder, file);
    };
    return {at("chunks-credentials"), at("cluster-credentials"), at("cluster-key")};
}

namespace {

// Null: the store is in no cluster.
std::shared_ptr<cluster::ClusterIndex> cluster_index(const Invocation& invocation, const SecretFiles& files) {
    const std::string url = text_of(invocation, "cluster");
    if (url.empty()) {
        for (const char* option : {"cluster-key", "cluster-credentials", "cluster-away-limit", "node"})
            if (invocation.settings.contains(option))
                throw UserError(ExitCode::usage, fmt::format("--{} is for --cluster URL", option));
        return nullptr;
    }
    if (text_of(invocation, "chunks").empty())
        throw UserError(ExitCode::usage,
                        "--cluster needs --chunks: daemons of a cluster have their chunks in one bucket");
    if (files.cluster_key.empty())
        throw UserError(ExitCode::usage, "--cluster needs --cluster-key FILE, the same for all daemons: openssl rand "
                                         "-hex 32 > FILE makes one");
    return std::make_shared<cluster::ClusterIndex>(
        etcd::parse_address(url), files.cluster.empty() ? etcd::Credentials{} : etcd::read_credentials(files.cluster),
        cluster::Seal::of_file("--cluster-key", files.cluster_key));
}

// The id of the cluster; "": there is none.
std::string identify_cluster(const std::filesystem::path& path, cluster::ClusterIndex* index) {
    const auto layer = store::real_files();
    store::Folder::make(path, *layer);
    store::Folder folder(path, layer);
    if (index)
        return cluster::identify(folder, *index);
    if (const auto member = store::membership_of(folder))
        throw UserError(ExitCode::conflict,
                        fmt::format("{} belongs to the cluster of {}: give --cluster, --cluster-key and --chunks; to "
                                    "take it out of the cluster, remove the file \"cluster\" in it",
                                    path.string(), member->address));
    return "";
}

// Returns the store's id among those of the cluster.
std::string join_cluster(const daemon::ServeOptions& options, const std::string& id) {
    store::Store store(options.store, {.bucket = options.chunks, .shared = options.cluster});
    return cluster::join(store, *options.cluster, id,
                         [](const std::string& line) { fmt::print(stderr, "kvmserver: {}\n", line); });
}

// A path of the API and a table have it, so it has few kinds of characters.
std::string node_name(const Invocation& invocation) {
    std::string name = text_of(invocation, "node");
    if (name.empty()) {
        char host[256] = "";
        ::gethostname(host, sizeof host - 1);
        return host;
    }
    constexpr std::size_t kLongest = 253; // as a host's
    const bool fits = name.size() <= kLongest && std::ranges::all_of(name, [](const char c) {
                          return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                                 c == '-' || c == '.' || c == '_';
                      });
    if (!fits || name == "." || name == "..")
        throw UserError(ExitCode::usage, fmt::format("--node: '{}': at most {} letters, digits, -, . and _",
                                                     tinykvm::brief(name), kLongest));
    return name;
}

// Null: chunks are on the disk only.
std::shared_ptr<daemon::ChunkStore> chunk_store(const Invocation& invocation, const std::filesystem::path& store,
                                                const std::string& credentials, const std::string& cluster_id) {
    const std::string url = text_of(invocation, "chunks");
    if (url.empty()) {
        for (const char* option : {"chunks-credentials", "chunk-cache-size"})
            if (invocation.settings.contains(option))
                throw UserError(ExitCode::usage, fmt::format("--{} is for --chunks URL", option));
        return nullptr;
    }
    objects::Address address = objects::parse_address("--chunks", url);
    auto chunks = std::make_shared<daemon::ChunkStore>(
        std::move(address),
        credentials.empty() ? objects::credentials_of_environment("give --chunks-credentials FILE")
                            : objects::read_credentials("--chunks-credentials", credentials),
        store, cluster_id);
    try {
        chunks->claim();
    } catch (const store::ChunksAway& error) { // what is on the disk can be served
        fmt::print(stderr, "kvmserver: {}; functions whose chunks are on the disk are served\n", error.what());
    }
    return chunks;
}

} // namespace

void open_shared(const Invocation& invocation, const SecretFiles& files, daemon::ServeOptions& options) {
    const std::string name = node_name(invocation);
    options.cluster = cluster_index(invocation, files);
    const std::string id = identify_cluster(options.store, options.cluster.get());
    options.chunks = chunk_store(invocation, options.store, files.chunks, id);
    if (options.cluster)
        options.node = {join_cluster(options, id), name, version_number(), 0};
}

} // namespace kvmserver::cli
