// Copies of unpacked pages in a folder, a file each. Snapshots hold the secrets of processes, so the folder
// must be the user's own and closed to all others.
#pragma once
#include <filesystem>
#include <optional>
#include <string_view>

#include "src/snapshot/page_cache.hpp"

namespace kvmserver {

// Any number of threads and processes may use the same folder. Nothing in it is believed: a copy is handed
// out only when its SHA-256 is its name's, which is found out when it is made, when the host was started
// since, and when its file was written to since. None of these ever throws.
class FolderCache final : public PageCache {
public:
    // Copies take a tenth of the folder's file system, and at least this; the longest unused go first.
    static constexpr std::uint64_t kMinRoom = 1ull << 30;

    // Keeps copies in `folder`, which is made when only it and its parent are missing; "" keeps none. `room`:
    // bytes of all copies; 0 for the default.
    explicit FolderCache(std::filesystem::path folder, std::uint64_t room = 0);
    // The same folder, with copies that only `tenant` has: those of another are others, whatever is in them.
    FolderCache of_tenant(std::string_view tenant) const;

    bool usable() const override;
    std::vector<tinykvm::UniqueFd> find_all(std::span<const CopyName> names) const override;
    tinykvm::UniqueFd keep(const CopyName& name, std::span<const std::byte> pages) const override;
    void offer(const CopyName& name, std::span<const std::byte> pages) const override { keep(name, pages); }
    void make_room() const override;
    std::string where() const override { return folder_.string(); }

    // `pages` are those that the name says; and keep() for one that is known to be so and not to be there.
    static bool is_of(const CopyName& name, std::span<const std::byte> pages);
    tinykvm::UniqueFd publish(const CopyName& name, std::span<const std::byte> pages) const;

    // Other things than copies, by any name that is fit for a file's. What is read may be anything.
    std::optional<std::vector<std::byte>> read(const std::string& name) const;
    void write(const std::string& name, std::span<const std::byte> bytes) const;

private:
    void remove_old() const;
    bool make_folder() const;
    std::filesystem::path path_of(const CopyName& name) const;
    tinykvm::UniqueFd open(const CopyName& name) const;

    std::filesystem::path folder_;
    std::uint64_t room_;
    std::string tenant_; // begins the names of its files
};

// Where copies are kept when the user does not say: systemd's CACHE_DIRECTORY, else kvmserver/ in the user's
// cache folder (XDG Base Directory Specification); "" without either.
std::filesystem::path default_cache_folder();

} // namespace kvmserver
