// A client of S3: objects in one bucket, by path-style addresses and signed requests (AWS's Signature Version 4).
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/objects/address.hpp"
#include "src/objects/credentials.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::objects {

// The service is not reached, or refuses. One line with what, where and how to mend it.
class Failed : public tinykvm::UserError {
public:
    explicit Failed(const std::string& message) : UserError(tinykvm::ExitCode::unreachable, message) {}
};

// Any number of threads may use it; each call blocks its own. Keys are below the address's prefix, and have only
// letters, digits and "._-/". Each request has limits of time, and is repeated a few times if the connection breaks or
// the service answers 5xx. All throw Failed.
class Bucket {
public:
    Bucket(Address address, Credentials credentials);
    ~Bucket();
    Bucket(const Bucket&) = delete;
    Bucket& operator=(const Bucket&) = delete;

    void put(const std::string& key, std::span<const std::byte> bytes);
    // nullopt: there is no such object. Failed if it is longer than `max_bytes`.
    std::optional<std::vector<std::byte>> get(const std::string& key, std::uint64_t max_bytes);
    std::optional<std::uint64_t> size_of(const std::string& key); // nullopt: there is no such object
    // The keys that begin with `prefix`.
    void list(const std::string& prefix, const std::function<void(const std::string& key)>& take);
    void remove(const std::string& key); // whether or not it is there
    // "s3://BUCKET/PREFIX/KEY", for messages.
    std::string name_of(const std::string& key) const;
    const Address& address() const { return address_; }

private:
    class Connection;
    struct Request;
    struct Reply;
    Reply ask(const Request& request);
    std::string path_of(const std::string& key) const;
    const Address address_;
    const Credentials credentials_;
    std::mutex mutex_;
    std::vector<std::unique_ptr<Connection>> idle_; // guarded by mutex_
};

// --- parts of list()

struct Listed {
    std::vector<std::string> keys;
    std::string more; // the token that continues the list; "": it is complete
};
// The reply to ListObjectsV2. nullopt: it is none.
std::optional<Listed> parse_list(std::string_view xml);

} // namespace kvmserver::objects
