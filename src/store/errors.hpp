// Errors of the store that callers may want to tell apart. All are UserErrors of one line. A failure of the host (no
// space, input/output errors) is a HostError.
#pragma once
#include <cstdint>
#include <string>

#include "src/common/digest.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::store {

using tinykvm::ExitCode;
using tinykvm::HostError;
using tinykvm::UserError;

// No such function, version, snapshot, upload, token or secret.
class NotFound : public UserError {
public:
    explicit NotFound(const std::string& message);
};

// A name, route, percentage or other value that the rules do not allow.
class BadValue : public UserError {
public:
    explicit BadValue(const std::string& message);
};

// The state of the store does not allow the operation: the version is live, the name is taken.
class Conflict : public UserError {
public:
    explicit Conflict(const std::string& message);
};

// The route belongs to another function.
class RouteTaken : public Conflict {
public:
    RouteTaken(std::string route, std::string owner);
    const std::string& route() const { return route_; }
    const std::string& owner() const { return owner_; }

private:
    std::string route_, owner_;
};

// The function has changed since the caller read it (HTTP: 412).
class StaleEtag : public Conflict {
public:
    StaleEtag(const std::string& function, std::string current);
    const std::string& current() const { return current_; } // "" if the function does not exist

private:
    std::string current_;
};

// An upload is to continue at another offset than the one given.
class WrongOffset : public Conflict {
public:
    WrongOffset(const std::string& upload, std::uint64_t given, std::uint64_t expected);
    std::uint64_t expected() const { return expected_; }

private:
    std::uint64_t expected_;
};

// The bytes do not match the announced digest.
class DigestMismatch : public UserError {
public:
    DigestMismatch(const std::string& what, const Digest& announced, const Digest& actual);
};

// A piece that was to be taken from the store is missing, perhaps removed by gc: the caller must send its bytes.
class MissingChunk : public UserError {
public:
    explicit MissingChunk(const Digest& digest);
    const Digest& digest() const { return digest_; }

private:
    Digest digest_;
};

// The bucket with the chunks (`serve --chunks`) is not reached or refuses. (HTTP: 503.)
class ChunksAway : public UserError {
public:
    explicit ChunksAway(const std::string& why);
};

// gc removes objects from the bucket of the cluster, or did so since the bucket was asked: whoever deploys asks again.
class BucketCollected : public Conflict {
public:
    BucketCollected();
};

// The cluster's index (`serve --cluster`) is not reached or refuses: nothing can be changed. (HTTP: 503.)
class IndexAway : public UserError {
public:
    explicit IndexAway(const std::string& why);
};

// The index is damaged; `verify` rebuilds it.
class IndexDamaged : public UserError {
public:
    IndexDamaged(const std::string& path, const std::string& why);
    const std::string& why() const { return why_; }

private:
    std::string why_;
};

} // namespace kvmserver::store
