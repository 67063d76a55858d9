// Cache of unpacked pages in a folder, one file each. Snapshots hold the secrets of processes, so the folder must
// belong to the user and be closed to all others.
#pragma once
#include <filesystem>
#include <optional>
#include <string_view>

#include "src/snapshot/page_cache.hpp"
#include "tinykvm/base/io_buffer.hpp"

namespace kvmserver {

// Any number of threads and processes may use the same folder. Files in it are not trusted: a copy is returned only
// after its SHA-256 was checked against its name. That happens when the copy is made, and again after a reboot and
// after the file has been written to. No member function throws.
class FolderCache final : public PageCache {
public:
    // Copies may use a tenth of the folder's file system, and at least this; the least recently used are evicted.
    static constexpr std::uint64_t kMinRoom = 1ull << 30;

    // Keeps copies in `folder`, which is created if only it and its parent are missing; "" disables the cache. `room`:
    // limit for all copies in bytes; 0 for the default.
    explicit FolderCache(std::filesystem::path folder, std::uint64_t room = 0);
    // A cache in the same folder whose copies are private to `tenant`: tenants do not share copies, even of equal
    // content.
    FolderCache of_tenant(std::string_view tenant) const;

    bool usable() const override;
    std::vector<tinykvm::UniqueFd> find_all(std::span<const CopyName> names) const override;
    tinykvm::UniqueFd keep(const CopyName& name, std::span<const std::byte> pages) const override;
    void offer(const CopyName& name, std::span<const std::byte> pages) const override { keep(name, pages); }
    void make_room() const override;
    std::string where() const override { return folder_.string(); }

    // Whether `pages` have this name's size and digest.
    static bool is_of(const CopyName& name, std::span<const std::byte> pages);
    // keep() without its checks: the caller knows that is_of() holds and that there is no such copy.
    tinykvm::UniqueFd publish(const CopyName& name, std::span<const std::byte> pages) const;

    // Data other than copies, under any valid file name. The content read is untrusted.
    std::optional<tinykvm::IoBuffer> read(const std::string& name) const;
    void write(const std::string& name, std::span<const std::byte> bytes) const;

private:
    void remove_old() const;
    bool make_folder() const;
    std::filesystem::path path_of(const CopyName& name) const;
    tinykvm::UniqueFd open(const CopyName& name) const;

    std::filesystem::path folder_;
    std::uint64_t room_;
    std::string tenant_; // prefix of file names
};

// The default cache folder: systemd's CACHE_DIRECTORY, else kvmserver/ in the user's cache folder (XDG Base Directory
// Specification); "" without either.
std::filesystem::path default_cache_folder();

} // namespace kvmserver
