// The program's output while it answers requests of ours (warm-up, trials), which nobody has asked for: counted, and
// shown only when it tells why something failed.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "tinykvm/linux/output_sink.hpp"

namespace kvmserver {

class HiddenOutput {
public:
    explicit HiddenOutput(std::string program) : program_(std::move(program)) {}

    void add(int stream, std::string_view bytes);

    // Logs how many lines were hidden since the last call; nothing if there were none.
    void tell_count();
    // Writes the last lines to stderr, under a line that says what they are. They do not count as hidden any more.
    void show_last();

    // Read by tests. An incomplete line counts.
    std::uint64_t lines() const;
    std::string last_lines() const;

    static constexpr std::size_t kKept = 20;         // lines
    static constexpr std::size_t kKeptOfLine = 2000; // bytes

private:
    void keep(std::string line);

    std::string program_;
    std::uint64_t lines_ = 0; // complete
    std::deque<std::string> kept_;
    std::array<std::string, 2> incomplete_;            // the beginning of a line, by stream
    std::array<bool, 2> has_incomplete_{false, false}; // also if nothing of it is kept
};

// For EventLoop::set_output. It keeps `output` alive.
inline tinykvm::OutputSink sink_of(std::shared_ptr<HiddenOutput> output) {
    return [output = std::move(output)](int stream, std::string_view bytes) { output->add(stream, bytes); };
}

} // namespace kvmserver
