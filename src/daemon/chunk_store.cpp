#include "src/daemon/chunk_store.hpp"

#include <fmt/format.h>

#include <utility>

#include "src/common/random_hex.hpp"
#include "src/store/errors.hpp"
#include "src/store/files/folder.hpp"
#include "src/store/files/lock.hpp"
#include "src/store/snapshots/bucket_record.hpp"

namespace kvmserver::daemon {
namespace {

using tinykvm::ExitCode;
using tinykvm::UserError;

constexpr const char* kMarker = "kvmserver-store";
constexpr std::string_view kBelow = "chunks/", kRecords = "snapshots/";
constexpr std::uint64_t kMaxRecord = 64 << 20;
constexpr std::chrono::seconds kAway{1};

std::string key_of(const Digest& chunk) {
    const std::string hex = chunk.hex();
    return fmt::format("{}{}/{}", kBelow, hex.substr(0, 2), hex);
}

std::string record_key(const Digest& snapshot) {
    const std::string hex = snapshot.hex();
    return fmt::format("{}{}/{}.json", kRecords, hex.substr(0, 2), hex);
}

std::string text_of(const std::vector<std::byte>& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

} // namespace

ChunkStore::ChunkStore(objects::Address address, objects::Credentials credentials, std::filesystem::path store,
                       std::string cluster)
    : bucket_(std::move(address), std::move(credentials)), store_(std::move(store)), cluster_(std::move(cluster)) {}

template <class Action>
auto ChunkStore::try_to(const Action& action) {
    {
        const std::lock_guard lock(away_mutex_);
        if (!away_.empty() && Clock::now() < away_until_)
            throw store::ChunksAway(away_);
    }
    try {
        return action();
    } catch (const objects::Failed& error) {
        ++failures_;
        const std::lock_guard lock(away_mutex_);
        away_ = error.what();
        away_until_ = Clock::now() + kAway;
        throw store::ChunksAway(away_);
    }
}

void ChunkStore::claim() {
    const std::lock_guard lock(claim_mutex_);
    if (claimed_)
        return;
    const auto layer = store::real_files();
    store::Folder::make(store_, *layer);
    store::Folder folder(store_, layer);
    const std::optional<std::string> ours = store::bucket_owner(folder);
    constexpr std::uint64_t kMaxMarker = 4096;
    const auto theirs = try_to([&] { return bucket_.get(kMarker, kMaxMarker); });
    const std::string id = ours.value_or(cluster_.empty() ? random_hex(16) : cluster_);
    if (theirs && ((!ours && cluster_.empty()) || text_of(*theirs) != id))
        throw UserError(ExitCode::conflict,
                        fmt::format("--chunks: {} belongs to another store: choose another prefix", text()));
    if (!theirs && ours)
        throw UserError(ExitCode::conflict,
                        fmt::format("--chunks: {} has nothing of this store, whose chunks are in another place: give "
                                    "that, or copy its objects to this one",
                                    text()));
    if (!ours) {
        if (!theirs)
            try_to([&] { bucket_.put(kMarker, bytes_of(id)); });
        const store::FileLock naming = store::FileLock::shared(folder, store::kSweepLock);
        store::set_bucket_owner(folder, id); // now the marker is there
    }
    claimed_ = true;
}

bool ChunkStore::has(const Digest& chunk, std::uint64_t length) {
    claim();
    return try_to([&] { return bucket_.size_of(key_of(chunk)) == length; });
}

void ChunkStore::put(const Digest& chunk, std::span<const std::byte> bytes) {
    claim();
    try_to([&] { bucket_.put(key_of(chunk), bytes); });
    sent_ += bytes.size();
}

std::optional<std::vector<std::byte>> ChunkStore::get(const Digest& chunk, std::uint64_t length) {
    claim();
    auto bytes = try_to([&] { return bucket_.get(key_of(chunk), length); });
    fetched_ += bytes ? bytes->size() : 0;
    return bytes;
}

bool ChunkStore::has_record(const Digest& snapshot) {
    claim();
    return try_to([&] { return bucket_.size_of(record_key(snapshot)).has_value(); });
}

void ChunkStore::put_record(const Digest& snapshot, const std::string& record) {
    claim();
    try_to([&] { bucket_.put(record_key(snapshot), bytes_of(record)); });
}

std::optional<std::string> ChunkStore::get_record(const Digest& snapshot) {
    claim();
    const auto bytes = try_to([&] { return bucket_.get(record_key(snapshot), kMaxRecord); });
    return bytes ? std::optional(text_of(*bytes)) : std::nullopt;
}

void ChunkStore::list_below(std::string_view prefix, std::string (*key_of)(const Digest&),
                            const std::function<void(const Digest&)>& take) {
    constexpr std::size_t kHex = 64;
    claim();
    try_to([&] {
        bucket_.list(std::string(prefix), [&](const std::string& key) {
            const auto digest = Digest::from_hex(std::string_view(key).substr(key.rfind('/') + 1, kHex));
            if (digest && key_of(*digest) == key)
                take(*digest);
        });
    });
}

void ChunkStore::list(const std::function<void(const Digest& chunk)>& take) { list_below(kBelow, key_of, take); }

void ChunkStore::list_records(const std::function<void(const Digest& snapshot)>& take) {
    list_below(kRecords, record_key, take);
}

void ChunkStore::remove_record(const Digest& snapshot) {
    claim();
    try_to([&] { bucket_.remove(record_key(snapshot)); });
}

void ChunkStore::remove(const Digest& chunk) {
    claim();
    try_to([&] { bucket_.remove(key_of(chunk)); });
}

std::string ChunkStore::name_of(const Digest& chunk) const { return bucket_.name_of(key_of(chunk)); }

ChunkCounts ChunkStore::counts() const { return {.sent = sent_, .fetched = fetched_, .failures = failures_}; }

} // namespace kvmserver::daemon
