// A cluster in memory: its index and its bucket.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "src/store/shared/documents.hpp"
#include "src/store/shared/shared_index.hpp"
#include "src/store/snapshots/chunk_bucket.hpp"
#include "tests/unit/store/samples.hpp"

namespace kvmserver::store::test {

class MemoryIndex final : public SharedIndex {
public:
    std::optional<SharedEntry> get(const std::string& key) override {
        const std::lock_guard lock(mutex_);
        reach();
        const auto at = entries_.find(key);
        return at == entries_.end() ? std::nullopt : std::optional(at->second);
    }
    std::vector<SharedEntry> entries(const std::string& prefix) override {
        const std::lock_guard lock(mutex_);
        reach();
        std::vector<SharedEntry> found;
        for (const auto& [key, entry] : entries_)
            if (key.starts_with(prefix))
                found.push_back(entry);
        waited += entries_.contains(kGcRunning);
        return found;
    }
    std::int64_t list(const std::function<void(SharedEntry)>& take) override {
        const std::lock_guard lock(mutex_);
        reach();
        for (const auto& [key, entry] : entries_)
            take({key, "", entry.revision});
        return revision_;
    }
    std::optional<std::int64_t> change(std::span<const SharedCondition> conditions,
                                       std::span<const SharedChange> changes) override {
        const std::lock_guard lock(mutex_);
        reach();
        if (before_change)
            std::exchange(before_change, {})();
        for (const SharedCondition& condition : conditions) {
            const auto at = entries_.find(condition.key);
            const bool holds = condition.value ? at != entries_.end() && at->second.value == condition.value
                                               : condition.revision == (at == entries_.end() ? 0 : at->second.revision);
            if (!holds) {
                ++refused;
                return std::nullopt;
            }
        }
        ++revision_;
        for (const SharedChange& change : changes)
            if (change.value)
                entries_[change.key] = {change.key, *change.value, revision_};
            else
                entries_.erase(change.key);
        return revision_;
    }
    std::unique_ptr<SharedLock> try_lock(const std::string& key) override {
        const std::lock_guard lock(mutex_);
        reach();
        if (entries_.contains(key))
            return nullptr;
        entries_[key] = {key, "", ++revision_};
        return std::make_unique<Lock>(*this, key);
    }
    void end_lock(const std::string& key) {
        const std::lock_guard lock(mutex_);
        entries_.erase(key);
        ++revision_;
    }
    std::string name() const override { return "memory"; }

    std::function<void()> before_change; // once
    bool away = false;
    std::atomic<unsigned> refused = 0; // changes whose conditions did not hold
    std::atomic<unsigned> waited = 0;  // looks whether gc still runs
    const std::map<std::string, SharedEntry>& entries() const { return entries_; }
    struct Backup {
        std::map<std::string, SharedEntry> entries;
        std::int64_t revision;
    };
    Backup backup() const { return {entries_, revision_}; }
    void restore(const Backup& backup) {
        entries_ = backup.entries;
        revision_ = backup.revision;
    }

private:
    class Lock final : public SharedLock {
    public:
        Lock(MemoryIndex& index, std::string key) : index_(index), key_(std::move(key)) {}
        ~Lock() override {
            if (!abandoned_)
                index_.end_lock(key_);
        }
        Lock(const Lock&) = delete;
        Lock& operator=(const Lock&) = delete;
        bool held() override { return true; }
        void abandon() override { abandoned_ = true; }

    private:
        MemoryIndex& index_;
        const std::string key_;
        bool abandoned_ = false;
    };
    void reach() const {
        if (away)
            throw IndexAway("it is away");
    }
    std::recursive_mutex mutex_; // before_change makes changes
    std::map<std::string, SharedEntry> entries_;
    std::int64_t revision_ = 1;
};

class MemoryBucket final : public ChunkBucket {
public:
    bool has(const Digest& chunk, std::uint64_t length) override {
        const std::lock_guard lock(mutex_);
        const auto at = chunks_.find(chunk);
        return at != chunks_.end() && at->second.size() == length;
    }
    void put(const Digest& chunk, std::span<const std::byte> bytes) override {
        const std::lock_guard lock(mutex_);
        chunks_[chunk].assign(bytes.begin(), bytes.end());
    }
    std::optional<std::vector<std::byte>> get(const Digest& chunk, std::uint64_t) override {
        const std::lock_guard lock(mutex_);
        const auto at = chunks_.find(chunk);
        return at == chunks_.end() ? std::nullopt : std::optional(at->second);
    }
    bool has_record(const Digest& snapshot) override { return records.contains(snapshot); }
    void put_record(const Digest& snapshot, const std::string& record) override { records[snapshot] = record; }
    std::optional<std::string> get_record(const Digest& snapshot) override {
        const auto at = records.find(snapshot);
        return at == records.end() ? std::nullopt : std::optional(at->second);
    }
    void list_records(const std::function<void(const Digest&)>& take) override {
        for (const auto& [snapshot, record] : records)
            take(snapshot);
    }
    void remove_record(const Digest& snapshot) override { records.erase(snapshot); }
    void list(const std::function<void(const Digest&)>& take) override {
        for (const auto& [chunk, bytes] : chunks_)
            take(chunk);
    }
    void remove(const Digest& chunk) override {
        chunks_.erase(chunk);
        if (after_remove)
            std::exchange(after_remove, {})();
    }
    std::string name_of(const Digest& chunk) const override { return chunk.hex(); }

    std::map<Digest, std::string> records;
    std::function<void()> after_remove; // once
    std::size_t size() const { return chunks_.size(); }

private:
    std::mutex mutex_;
    std::map<Digest, Bytes> chunks_;
};

} // namespace kvmserver::store::test
