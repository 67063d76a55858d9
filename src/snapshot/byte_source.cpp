#include "src/snapshot/byte_source.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <vector>

#include "src/snapshot/format.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/read.hpp"
#include "tinykvm/base/text.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver {

using tinykvm::ExitCode;
using tinykvm::UniqueFd;
using tinykvm::UserError;

namespace {

void read_fully(int fd, std::uint64_t offset, std::span<std::byte> bytes, const std::string& name) {
    const auto count = tinykvm::read_at(fd, offset, bytes);
    if (!count)
        tinykvm::throw_errno(fmt::format("read {}", tinykvm::printable(name)));
    if (*count < bytes.size())
        throw FormatError(fmt::format("truncated while it was in use: it ends at {} bytes", offset + *count));
}

class FileSource final : public ByteSource {
public:
    FileSource(UniqueFd fd, const struct stat& info, std::string name)
        : fd_(std::move(fd)), info_(info), name_(std::move(name)) {}
    std::uint64_t size() const override { return static_cast<std::uint64_t>(info_.st_size); }
    void read_at(std::uint64_t offset, std::span<std::byte> bytes) const override {
        read_fully(fd_.get(), offset, bytes, name_);
    }

private:
    UniqueFd fd_;
    struct stat info_;
    std::string name_;
};

class PiecesSource final : public ByteSource {
public:
    explicit PiecesSource(std::shared_ptr<ArrivingPieces> arriving) : arriving_(std::move(arriving)) {}
    // An empty `file` comes later.
    void add(std::uint64_t length, std::string name, UniqueFd file) {
        pieces_.push_back({size_, length, std::move(name), std::move(file)});
        size_ += length;
    }
    std::uint64_t size() const override { return size_; }
    void read_at(std::uint64_t offset, std::span<std::byte> bytes) const override {
        auto piece = std::upper_bound(pieces_.begin(), pieces_.end(), offset,
                                      [](std::uint64_t at, const Piece& p) { return at < p.offset; });
        while (!bytes.empty()) {
            if (piece == pieces_.begin() || std::prev(piece)->offset + std::prev(piece)->length <= offset)
                throw FormatError("truncated: its pieces are too few");
            const Piece& from = *std::prev(piece++);
            const std::uint64_t skipped = offset - from.offset;
            const auto part =
                bytes.first(static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), from.length - skipped)));
            read_fully(file_of(from), skipped, part, from.name);
            offset += part.size();
            bytes = bytes.subspan(part.size());
        }
    }

private:
    struct Piece {
        std::uint64_t offset, length;
        std::string name;
        UniqueFd file;
    };
    int file_of(const Piece& piece) const {
        if (piece.file)
            return piece.file.get();
        if (!arriving_)
            throw FormatError("a part of it that is needed has not come yet");
        return arriving_->wait_for(static_cast<std::size_t>(&piece - pieces_.data()));
    }

    const std::shared_ptr<ArrivingPieces> arriving_;
    std::vector<Piece> pieces_;
    std::uint64_t size_ = 0;
};

std::unique_ptr<ByteSource> regular_file(UniqueFd fd, const struct stat& info, const std::string& name) {
    if (!S_ISREG(info.st_mode))
        throw UserError(ExitCode::bad_snapshot, fmt::format("{}: not a snapshot: it is {}", tinykvm::printable(name),
                                                            S_ISDIR(info.st_mode) ? "a folder" : "not a regular file"));
    return std::make_unique<FileSource>(std::move(fd), info, name);
}

} // namespace

std::unique_ptr<ByteSource> open_file_source(const std::filesystem::path& path) {
    // O_NONBLOCK: do not wait for the writer of a FIFO.
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat info {};
    if (!fd || ::fstat(fd.get(), &info) != 0) {
        const int error = errno;
        const std::string why = fmt::format("{}: {}", tinykvm::printable(path.native()), std::strerror(error));
        if (error == ENOENT || error == ENOTDIR)
            throw UserError(ExitCode::not_found, why);
        if (error == EACCES || error == EPERM)
            throw UserError(ExitCode::not_permitted, why);
        throw tinykvm::HostError(error, fmt::format("open {}", tinykvm::printable(path.native())));
    }
    return regular_file(std::move(fd), info, path.native());
}

std::unique_ptr<ByteSource> open_file_source(UniqueFd fd, const std::string& name) {
    struct stat info {};
    if (::fstat(fd.get(), &info) != 0)
        tinykvm::throw_errno(fmt::format("stat {}", tinykvm::printable(name)));
    return regular_file(std::move(fd), info, name);
}

std::unique_ptr<ByteSource> open_pieces_source(int list, std::vector<UniqueFd> files,
                                               std::shared_ptr<ArrivingPieces> arriving) {
    const std::string text = tinykvm::read_text(list, "the list of pieces");
    auto source = std::make_unique<PiecesSource>(std::move(arriving));
    const auto malformed = [] {
        return UserError(ExitCode::bad_snapshot, "the list of a snapshot's pieces is malformed");
    };
    auto file = files.begin();
    const char* at = text.data();
    const char* const end = at + text.size();
    while (at != end) {
        const char* const line_end =
            static_cast<const char*>(std::memchr(at, '\n', static_cast<std::size_t>(end - at)));
        std::uint64_t length = 0;
        const auto [space, error] = std::from_chars(at, line_end ? line_end : end, length);
        if (!line_end || error != std::errc() || space == line_end || *space != ' ' || length == 0)
            throw malformed();
        std::string name(space + 1, line_end);
        const bool later = name.ends_with(kComesLater);
        if (later)
            name.resize(name.size() - kComesLater.size());
        else if (file == files.end())
            throw malformed();
        source->add(length, std::move(name), later ? UniqueFd() : std::move(*file++));
        at = line_end + 1;
    }
    if (file != files.end())
        throw malformed();
    return source;
}

} // namespace kvmserver
