#include "tests/unit/store/samples.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <random>
#include <sstream>

#include "tinykvm/base/read.hpp"

namespace kvmserver::store::test {

TempFolder::TempFolder() {
    const char* base = ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    std::string name = std::string(base) + "/store-XXXXXX";
    if (!::mkdtemp(name.data()))
        throw HostError(errno, "mkdtemp");
    path_ = name;
}

TempFolder::~TempFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
}

Bytes bytes_of(std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
}

std::string read_text(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
}

void write_text(const fs::path& path, std::string_view text) {
    std::ofstream(path, std::ios::binary | std::ios::trunc)
        .write(text.data(), static_cast<std::streamsize>(text.size()));
}

std::vector<fs::path> files_below(const fs::path& path) {
    std::vector<fs::path> files;
    if (fs::exists(path))
        for (const auto& entry : fs::recursive_directory_iterator(path))
            if (entry.is_regular_file())
                files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    return files;
}

std::vector<Bytes> sample_pieces(unsigned seed, unsigned pieces) {
    std::vector<Bytes> all;
    for (unsigned i = 0; i < pieces; ++i) {
        std::mt19937 random(i < pieces / 2 ? i : seed * 1000 + i);
        Bytes piece(500 + 300 * i);
        for (std::byte& byte : piece)
            byte = static_cast<std::byte>(random());
        all.push_back(std::move(piece));
    }
    return all;
}

Bytes joined(const std::vector<Bytes>& pieces) {
    Bytes all;
    for (const Bytes& piece : pieces)
        all.insert(all.end(), piece.begin(), piece.end());
    return all;
}

SnapshotHold import(Store& store, const std::vector<Bytes>& pieces) {
    Importer importer(store);
    for (const Bytes& piece : pieces)
        importer.put(piece);
    return importer.commit();
}

DeployResult deploy(Store& store, const std::string& name, unsigned seed, const std::vector<std::string>& routes) {
    const SnapshotHold hold = import(store, sample_pieces(seed));
    DeployRequest request;
    request.function = name;
    request.snapshot = hold.digest();
    request.manifest = fmt::format(R"({{"seed":{}}})", seed);
    if (!routes.empty())
        request.routes.emplace();
    for (const std::string& route : routes)
        request.routes->push_back(Route::parse(route));
    return Functions(store).deploy(request);
}

std::uint64_t arrive(Store& store, const std::string& name, std::uint64_t number) {
    const SnapshotHold hold = import(store, sample_pieces(9));
    DeployRequest request;
    request.function = name;
    request.snapshot = hold.digest();
    request.state = VersionState::pending;
    request.activate = false;
    request.at_least = number;
    request.secrets.emplace()["WORD"] = "sesame";
    return Functions(store).deploy(request).version;
}

Bytes exported(Store& store, const Digest& digest) {
    const tinykvm::UniqueFd file(::memfd_create("exported", MFD_CLOEXEC));
    const StoredSnapshot snapshot(store, digest);
    snapshot.export_to(file.get());
    Bytes bytes(static_cast<std::size_t>(snapshot.size()) + 1);
    bytes.resize(tinykvm::read_at(file.get(), 0, bytes, "read memfd"));
    return bytes;
}

std::string picture(Store& store, const std::string& name) {
    Functions functions(store);
    FunctionDetails details;
    try {
        details = functions.describe(name);
    } catch (const NotFound&) {
        return "";
    }
    std::string text = "revision " + details.etag.substr(details.etag.find('-') + 1); // what is before is random
    for (const Route& route : details.routes)
        text += " route " + route.text();
    for (const auto& [variable, value] : details.env)
        text += fmt::format(" env {}={}", variable, value);
    for (const auto& [variable, value] : Secrets(store).values(name, ""))
        text += fmt::format(" secret {}={}", variable, value);
    for (const VersionInfo& version : functions.versions(name))
        text += fmt::format("\nv{} {} {}% {} {}{} {}", version.number, version.snapshot.hex(), version.percent,
                            version.manifest, version.ceilings, name_of(version.state),
                            sha256(exported(store, version.snapshot)) == version.snapshot);
    return text;
}

std::string lines_of(const VerifyReport& report) {
    std::string text;
    for (const Finding& finding : report.findings)
        text += fmt::format("{} {}\n", static_cast<int>(finding.kind), finding.line);
    return text;
}

void FaultyFiles::arm(Fault fault, int nth) {
    const std::lock_guard lock(mutex_);
    fault_ = fault;
    nth_ = nth;
    calls_ = 0;
    struck_ = dead_ = false;
}

int FaultyFiles::strike(bool needs_room) {
    const std::lock_guard lock(mutex_);
    if (dead_)
        throw Died();
    ++calls_;
    if (fault_ == Fault::none || calls_ < nth_)
        return 0;
    if (fault_ == Fault::full) {
        struck_ |= needs_room;
        return needs_room ? -ENOSPC : 0;
    }
    if (calls_ > nth_)
        return 0;
    struck_ = true;
    if (fault_ == Fault::io_error)
        return -EIO;
    if (fault_ == Fault::death) {
        dead_ = true;
        throw Died();
    }
    return 0;
}

int FaultyFiles::open(int at, const char* path, int flags, mode_t mode) {
    const int error = strike((flags & O_CREAT) != 0);
    return error ? error : real_->open(at, path, flags, mode);
}

ssize_t FaultyFiles::write(int fd, std::span<const std::byte> bytes, std::uint64_t offset) {
    const std::lock_guard lock(mutex_);
    const auto half = bytes.first((bytes.size() + 1) / 2);
    if (fault_ == Fault::death && !dead_ && calls_ + 1 == nth_)
        real_->write(fd, half, offset);
    if (const int error = strike(true))
        return error;
    return real_->write(fd, fault_ == Fault::short_write && calls_ >= nth_ ? half : bytes, offset);
}

int FaultyFiles::fsync(int fd) {
    const int error = strike(true);
    return error ? error : real_->fsync(fd);
}
int FaultyFiles::rename(int at, const char* from, const char* to) {
    const int error = strike(true);
    return error ? error : real_->rename(at, from, to);
}
int FaultyFiles::link(int at, const char* from, const char* to) {
    const int error = strike(true);
    return error ? error : real_->link(at, from, to);
}
int FaultyFiles::unlink(int at, const char* path) {
    const int error = strike(false);
    return error ? error : real_->unlink(at, path);
}
int FaultyFiles::mkdir(int at, const char* path, mode_t mode) {
    const int error = strike(true);
    return error ? error : real_->mkdir(at, path, mode);
}
int FaultyFiles::rmdir(int at, const char* path) {
    const int error = strike(false);
    return error ? error : real_->rmdir(at, path);
}

const char* name_of(FaultyFiles::Fault fault) {
    constexpr const char* kNames[] = {"none", "full", "io_error", "short_write", "death"};
    return kNames[static_cast<int>(fault)];
}

} // namespace kvmserver::store::test
