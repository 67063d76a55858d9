// Files that the tests make: folders that go away, memory images, and snapshots put together by hand.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "src/snapshot/format.hpp"
#include "src/snapshot/index.hpp"
#include "src/snapshot/metadata.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::test {

class TempFolder {
public:
    TempFolder();
    ~TempFolder();
    TempFolder(const TempFolder&) = delete;
    TempFolder& operator=(const TempFolder&) = delete;
    const std::filesystem::path& path() const { return path_; }
    std::filesystem::path operator/(const char* name) const { return path_ / name; }
    // How many entries it has, hidden ones too.
    std::size_t entries() const;

private:
    std::filesystem::path path_;
};

using Bytes = std::vector<std::byte>;
Bytes read_file(const std::filesystem::path& path);
void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes);
Bytes to_bytes(std::string_view text);

// Pages of `seed`-dependent content: about a quarter zero, some equal to others, some code-like, some random.
Bytes make_memory(std::uint32_t frames, unsigned seed = 1);

// A snapshot file whose checksums are right, whatever it says.
struct Parts {
    Bytes chunks;          // as stored
    Bytes metadata, index; // before compression
    std::uint32_t chunk_count = 0;
    std::function<void(format::Header&)> change_header = [](format::Header&) {};
};
Bytes assemble(const Parts& parts);

// What is thrown; {ok, ""} when nothing is. Other exceptions than UserError fail the test.
struct Outcome {
    tinykvm::ExitCode code = tinykvm::ExitCode::ok;
    std::string message;
};
Outcome outcome_of(const std::function<void()>& action);
// open() and verify().
Outcome check_file(const std::filesystem::path& path);

} // namespace kvmserver::test
