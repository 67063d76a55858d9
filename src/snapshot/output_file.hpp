// A file that appears under its name only when it is complete.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver {

// The file has no name until publish() (or, where the file system has no O_TMPFILE, a hidden one, which the
// destructor removes); what was under the name before stays until then. Not to be used by two threads.
// Throws UserError when the place cannot be written to, HostError for everything else.
class OutputFile {
public:
    // Only the owner may read it: a snapshot is the memory of a process, with all its secrets.
    static constexpr unsigned kMode = 0600;

    enum class Naming { nameless, hidden }; // until it is published; a nameless one falls back to hidden
    explicit OutputFile(std::filesystem::path path, Naming naming = Naming::nameless);
    ~OutputFile();
    OutputFile(const OutputFile&) = delete;
    OutputFile& operator=(const OutputFile&) = delete;

    void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
    int fd() const { return fd_.get(); }
    enum class Durable { yes, no }; // flushed to the disk first, file and folder
    void publish(Durable durable = Durable::yes);

private:
    [[noreturn]] void fail(const char* operation) const; // by errno
    bool open_nameless();
    void open_hidden();
    std::string hidden_name() const;

    std::filesystem::path path_, folder_;
    tinykvm::UniqueFd folder_fd_, fd_;
    std::string hidden_; // in the folder; "" while there is none
};

} // namespace kvmserver
