// [function.storage] with a program: a second function, which is deployed with the first and is its storage.
#pragma once
#include <toml++/toml.h>

#include <memory>
#include <string>
#include <vector>

#include "src/cli/platform/connection.hpp"
#include "src/cli/platform/source.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::cli::platform {

// Keys of [function.storage], with and without a program.
std::vector<std::string> storage_keys(bool with_program);

// The manifest of the second function, without its name. `folder`: of the first one's manifest.
std::string storage_manifest(const toml::table& storage, const std::filesystem::path& folder);

class StorageFunction {
public:
    // Of the manifest of a function of this name. Throws UserError.
    StorageFunction(const Manifest& manifest, const std::string& function);

    const std::string& name() const { return name_; }
    // Whether some version of it is live. Throws UserError (conflict) if that is no storage but a function of its own.
    bool exists(Connection& platform) const;
    // Whether it is live as the manifest says.
    bool is_live(Connection& platform) const;
    // Makes it live, unless it is; if `anew`, anyhow. Returns what a script may want to know: name, version, and
    // whether it was deployed. Throws UserError.
    nlohmann::json deploy(Connection& platform, const Invocation& invocation, bool anew, Context& context) const;

private:
    nlohmann::json live_versions(Connection& platform) const;

    std::string function_, name_;
    tinykvm::UniqueFd file_; // of the manifest: in memory
    Source source_;
};

} // namespace kvmserver::cli::platform
