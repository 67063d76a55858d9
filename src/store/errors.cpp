#include "src/store/errors.hpp"

#include <fmt/format.h>

#include "tinykvm/base/text.hpp"

namespace kvmserver::store {

NotFound::NotFound(const std::string& message) : UserError(ExitCode::not_found, message) {}
BadValue::BadValue(const std::string& message) : UserError(ExitCode::usage, message) {}
Conflict::Conflict(const std::string& message) : UserError(ExitCode::conflict, message) {}

RouteTaken::RouteTaken(std::string route, std::string owner)
    : Conflict(fmt::format("route {} belongs to function {}: choose another one, or take it from {} first",
                           tinykvm::brief(route), owner, owner)),
      route_(std::move(route)), owner_(std::move(owner)) {}

StaleEtag::StaleEtag(const std::string& function, std::string current)
    : Conflict(
          current.empty()
              ? fmt::format("function {} does not exist (any more): deploy it without a condition", function)
              : fmt::format(
                    "function {} was changed by another request (it is now at {}): read it again and repeat the change",
                    function, current)),
      current_(std::move(current)) {}

WrongOffset::WrongOffset(const std::string& upload, std::uint64_t given, std::uint64_t expected)
    : Conflict(fmt::format("upload {}: offset {} is not its end: continue at {}", upload, given, expected)),
      expected_(expected) {}

DigestMismatch::DigestMismatch(const std::string& what, const Digest& announced, const Digest& actual)
    : UserError(ExitCode::bad_snapshot, fmt::format("{}: its SHA-256 is {}, not {} as announced: send it again", what,
                                                    actual.hex(), announced.hex())) {}

MissingChunk::MissingChunk(const Digest& digest)
    : UserError(
          ExitCode::not_found,
          fmt::format("chunk {} is not in the store: ask again which ones are missing and send them", digest.hex())),
      digest_(digest) {}

ChunksAway::ChunksAway(const std::string& why) : UserError(ExitCode::unreachable, "chunks of snapshots: " + why) {}

BucketCollected::BucketCollected()
    : Conflict("gc removes objects from the bucket of the cluster, again and again: deploy it again") {}

IndexAway::IndexAway(const std::string& why) : UserError(ExitCode::unreachable, "the cluster's index: " + why) {}

IndexDamaged::IndexDamaged(const std::string& path, const std::string& why)
    : UserError(ExitCode::failure,
                fmt::format("{}: {}: stop what uses the store and run `kvmserver verify`, which repairs it",
                            tinykvm::brief(path), tinykvm::brief(why))),
      why_(tinykvm::brief(why)) {}

} // namespace kvmserver::store
