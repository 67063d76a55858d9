// A file that appears under its name only when complete.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver {

// The file has no name until publish(). (On file systems without O_TMPFILE it has a hidden name, which the destructor
// removes.) A file of that name is kept until then. Not thread-safe. Throws UserError when the place is not writable,
// HostError for everything else.
class OutputFile {
public:
    // Only the owner may read it: a snapshot is the memory of a process, with all its secrets.
    static constexpr unsigned kMode = 0600;

    enum class Naming { nameless, hidden }; // until publish(); nameless falls back to hidden
    explicit OutputFile(std::filesystem::path path, Naming naming = Naming::nameless);
    ~OutputFile();
    OutputFile(const OutputFile&) = delete;
    OutputFile& operator=(const OutputFile&) = delete;

    void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
    int fd() const { return fd_.get(); }
    enum class Durable { yes, no }; // yes: file and folder are flushed to disk first
    void publish(Durable durable = Durable::yes);

private:
    [[noreturn]] void fail(const char* operation) const; // throws for errno
    bool open_nameless();
    void open_hidden();
    std::string hidden_name() const;

    std::filesystem::path path_, folder_;
    tinykvm::UniqueFd folder_fd_, fd_;
    std::string hidden_; // hidden name in the folder; "" if none
};

} // namespace kvmserver
