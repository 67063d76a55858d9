// The folder of a store: names in it, whole-file reads and durable writes. Paths are relative to it.
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

inline constexpr const char* kChunks = "chunks";       // ab/abcdef...: bytes, named by their SHA-256
inline constexpr const char* kSnapshots = "snapshots"; // <digest>.json: records
inline constexpr const char* kFunctions = "functions"; // <name>/function.json, <name>/<version>.json: records
inline constexpr const char* kUploads = "uploads";     // <id>: bytes that arrived so far
inline constexpr const char* kTmp = "tmp";             // files that have no name yet
inline constexpr const char* kLocks = "locks";         // pin.hpp
inline constexpr const char* kBroken = "broken";       // chunks that verify found altered
inline constexpr const char* kSettings = "store.json"; // record: tokens, secrets for all
inline constexpr const char* kIndex = "index.db";
inline constexpr const char* kIndexLock = "index.lock"; // shared: in use; exclusive: being made, migrated, rebuilt
inline constexpr const char* kSweepLock = "sweep.lock"; // shared: naming files; exclusive: removing unnamed ones

// Errors are HostErrors "OPERATION PATH: strerror" unless something else is said.
class Folder {
public:
    // Opens the folder, which must be there (UserError).
    Folder(std::filesystem::path path, std::shared_ptr<FileLayer> layer);
    // Makes what is missing of the folder and its layout.
    static void make(const std::filesystem::path& path, FileLayer& layer);

    int fd() const { return fd_.get(); }
    std::string full(std::string_view relative) const;    // for messages
    std::string path_of(std::string_view relative) const; // for other libraries

    // --- writing; nothing is durable before it and the folder that names it are synced
    bool make_folder(const std::string& path);                            // false: it is there already
    tinykvm::UniqueFd create(const std::string& path);                    // new, else EEXIST
    tinykvm::UniqueFd open_write(const std::string& path, int flags = 0); // not through a symlink
    void write(int fd, const std::string& path, std::span<const std::byte> bytes, std::uint64_t offset);
    void sync(int fd, const std::string& path);
    void sync_folder(const std::string& path);
    void rename(const std::string& from, const std::string& to);
    bool link(const std::string& from, const std::string& to); // false: not possible, for whatever reason
    bool remove(const std::string& path);                      // false: it was not there
    void remove_tree(const std::string& path);                 // one level of files
    // Puts a file in place of whatever has that name, whole or not at all; the folder is for the caller to
    // sync.
    void put(const std::string& path, std::string_view text);

    // --- reading; what is not a regular file is not there
    tinykvm::UniqueFd open_read(const std::string& path) const; // empty: it is not there
    std::optional<std::uint64_t> size_of(const std::string& path) const;
    std::optional<std::string> read(const std::string& path,
                                    std::uint64_t most) const; // a longer one: HostError EFBIG
    std::vector<std::string>
    list(const std::string& path) const; // sorted, without . and ..; empty when it is not there

private:
    std::filesystem::path path_;
    std::shared_ptr<FileLayer> layer_;
    tinykvm::UniqueFd fd_;
};

} // namespace kvmserver::store
