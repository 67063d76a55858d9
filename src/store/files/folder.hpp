// The folder of a store: names of its entries, whole-file reads and durable writes. Paths are relative to it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/store/files/file_layer.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::store {

inline constexpr const char* kChunks = "chunks";       // ab/abcdef...: chunks, named by their SHA-256
inline constexpr const char* kSnapshots = "snapshots"; // <digest>.json: records
inline constexpr const char* kFunctions = "functions"; // <name>/function.json, <name>/<version>.json: records
inline constexpr const char* kUploads = "uploads";     // <id>: bytes received so far
inline constexpr const char* kTmp = "tmp";             // temporary files
inline constexpr const char* kLocks = "locks";         // see pin.hpp
inline constexpr const char* kSavedStates = "states";  // of suspended machines: saved_state.hpp
inline constexpr const char* kBroken = "broken";       // altered chunks, moved here by verify
inline constexpr const char* kSettings = "store.json"; // record: tokens, shared secrets
inline constexpr const char* kBucket = "bucket";       // record: whose objects in a bucket are this store's
inline constexpr const char* kCluster = "cluster";     // record: to which cluster the store belongs
inline constexpr const char* kClusterContact = "cluster-contact"; // record: when its index was last reached
inline constexpr const char* kIndex = "index.db";
// shared: the index is in use; exclusive: it is being made, migrated or rebuilt
inline constexpr const char* kIndexLock = "index.lock";
inline constexpr const char* kSweepLock = "sweep.lock"; // shared: naming files; exclusive: removing unnamed files
// shared: objects that are about to be named; exclusive: removing unnamed objects
inline constexpr const char* kBucketLock = "bucket.lock";

// Errors are HostErrors "OPERATION PATH: strerror" unless stated otherwise.
class Folder {
public:
    // Opens the folder, which must exist (UserError).
    Folder(std::filesystem::path path, std::shared_ptr<FileLayer> layer);
    // Creates the folder and its subfolders as far as they are missing.
    static void make(const std::filesystem::path& path, FileLayer& layer);

    int fd() const { return fd_.get(); }
    std::string full(std::string_view relative) const;    // for messages
    std::string path_of(std::string_view relative) const; // for other libraries

    // --- writing. Nothing is durable before both the file and the folder that names it are synced.
    bool make_folder(const std::string& path);                            // false: it exists already
    tinykvm::UniqueFd create(const std::string& path);                    // a new file, else EEXIST
    tinykvm::UniqueFd open_write(const std::string& path, int flags = 0); // does not follow a symlink
    void write(int fd, const std::string& path, std::span<const std::byte> bytes, std::uint64_t offset);
    void sync(int fd, const std::string& path);
    void sync_folder(const std::string& path);
    void rename(const std::string& from, const std::string& to);
    bool link(const std::string& from, const std::string& to); // false on any failure
    bool remove(const std::string& path);                      // false: it did not exist
    void remove_tree(const std::string& path);                 // a folder and the files in it, one level deep
    // Atomically replaces the file of that name, if any. The caller must sync the folder.
    void put(const std::string& path, std::string_view text);

    // --- reading. Anything but a regular file counts as missing.
    tinykvm::UniqueFd open_read(const std::string& path) const; // empty: no such file
    std::optional<std::uint64_t> size_of(const std::string& path) const;
    std::optional<std::string> read(const std::string& path,
                                    std::uint64_t max_bytes) const; // HostError EFBIG if it is longer than `max_bytes`
    // Sorted, without . and ..; empty when there is no such folder.
    std::vector<std::string> list(const std::string& path) const;

private:
    std::filesystem::path path_;
    std::shared_ptr<FileLayer> layer_;
    tinykvm::UniqueFd fd_;
};

} // namespace kvmserver::store
