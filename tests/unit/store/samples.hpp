// Stores, snapshots and broken disks for the tests.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/store/errors.hpp"
#include "src/store/files/file_layer.hpp"
#include "src/store/functions/functions.hpp"
#include "src/store/functions/secrets.hpp"
#include "src/store/functions/tokens.hpp"
#include "src/store/snapshots/gc.hpp"
#include "src/store/snapshots/importer.hpp"
#include "src/store/snapshots/stored_snapshot.hpp"
#include "src/store/snapshots/uploads.hpp"
#include "src/store/snapshots/verify.hpp"
#include "src/store/store.hpp"

namespace kvmserver::store::test {

namespace fs = std::filesystem;
using Bytes = std::vector<std::byte>;

class TempFolder { // in memory where there is room for it: fsync is free there
public:
    TempFolder();
    ~TempFolder();
    TempFolder(const TempFolder&) = delete;
    TempFolder& operator=(const TempFolder&) = delete;
    const fs::path& path() const { return path_; }
    fs::path operator/(const char* name) const { return path_ / name; }

private:
    fs::path path_;
};

Bytes bytes_of(std::string_view text);
std::string read_text(const fs::path& path);
void write_text(const fs::path& path, std::string_view text);
std::vector<fs::path> files_below(const fs::path& path); // regular ones, sorted

// Pieces of a snapshot: the first ones are the same for every `seed`, the last ones differ.
std::vector<Bytes> sample_pieces(unsigned seed, unsigned pieces = 6);
Bytes joined(const std::vector<Bytes>& pieces);
SnapshotHold import(Store& store, const std::vector<Bytes>& pieces);
// Imports sample_pieces(seed) and deploys it.
DeployResult deploy(Store& store, const std::string& name, unsigned seed, const std::vector<std::string>& routes = {});
// A version that is on its way from another daemon, with this number or a higher one, and a secret WORD.
std::uint64_t arrive(Store& store, const std::string& name, std::uint64_t number);
Bytes exported(Store& store, const Digest& digest);

// All that can be seen of a function, its bytes too; "" when it does not exist.
std::string picture(Store& store, const std::string& name);
// Findings, a line each.
std::string lines_of(const VerifyReport& report);

// The process dies: nothing that runs afterwards reaches the disk. No std::exception: nobody catches it by
// mistake.
struct Died {};

class FaultyFiles : public FileLayer {
public:
    enum class Fault {
        none,
        full,        // from the nth call on: ENOSPC for what needs room
        io_error,    // the nth call: EIO
        short_write, // from the nth call on: every write is a short one
        death,       // at the nth call, a write half done
    };
    void arm(Fault fault, int nth);
    int calls() const { return calls_; }
    bool struck() const { return struck_; }

    int open(int at, const char* path, int flags, mode_t mode) override;
    ssize_t write(int fd, std::span<const std::byte> bytes, std::uint64_t offset) override;
    int fsync(int fd) override;
    int rename(int at, const char* from, const char* to) override;
    int link(int at, const char* from, const char* to) override;
    int unlink(int at, const char* path) override;
    int mkdir(int at, const char* path, mode_t mode) override;
    int rmdir(int at, const char* path) override;

protected:
    std::recursive_mutex mutex_; // guards the members below, and those of derived classes, while threads use it

private:
    int strike(bool needs_room); // 0, or -errno
    std::shared_ptr<FileLayer> real_ = real_files();
    Fault fault_ = Fault::none;
    int nth_ = 0, calls_ = 0;
    bool struck_ = false, dead_ = false;
};
const char* name_of(FaultyFiles::Fault fault);

} // namespace kvmserver::store::test
