#include "src/daemon/output_source.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "src/common/clock.hpp"

namespace kvmserver::daemon {
namespace {

constexpr std::string_view kOurPrefix = "kvmserver: ";
constexpr std::uint64_t kSecondNs = 1'000'000'000, kReportDroppedNs = 10 * kSecondNs;

} // namespace

Outputs::Rate::Rate(std::uint64_t bytes_a_second, std::uint64_t now_ns)
    : limited_(bytes_a_second != 0),
      allowance_(std::max(bytes_a_second * kBurstSeconds, std::uint64_t{kLongestLine + kLineBytes}),
                 kBurstSeconds * kSecondNs, now_ns) {}

bool Outputs::Rate::take(std::uint64_t bytes, std::uint64_t now_ns) {
    const std::lock_guard lock(mutex_);
    return !limited_ || allowance_.take(bytes, now_ns);
}

bool Outputs::Rate::full(std::uint64_t now_ns) {
    const std::lock_guard lock(mutex_);
    return allowance_.full(now_ns);
}

Outputs::Source::Source(Outputs& outputs, std::string function, std::uint64_t version, std::shared_ptr<Rate> rate,
                        int out, int errors)
    : outputs_(outputs), function_(std::move(function)), version_(version), rate_(std::move(rate)) {
    streams_[0].fd = out;
    streams_[1].fd = errors;
}

void Outputs::Source::mark(const std::string& request_id) {
    const std::lock_guard lock(offsets_);
    for (Stream& stream : streams_) {
        int waiting = 0; // printed before now, still in the pipe
        (void)::ioctl(stream.fd, FIONREAD, &waiting);
        const std::uint64_t offset = stream.read + static_cast<std::uint64_t>(std::max(waiting, 0));
        if (!stream.markers.empty() && stream.markers.back().offset == offset)
            stream.markers.back().request_id = request_id;
        else
            stream.markers.push_back({offset, request_id});
    }
}

std::string Outputs::Source::finish(std::vector<LogLine>& lines) {
    const std::lock_guard turn(turn_);
    if (finished_)
        return last_words_;
    collected_ = &lines;
    for (std::size_t number = 0; number < 2; ++number) {
        constexpr unsigned kMaxReads = 64; // more than a pipe holds; bounds the loop
        Turn came = Turn::more;
        for (unsigned reads = 0; reads < kMaxReads && (came == Turn::more || came == Turn::pause); ++reads)
            came = read(number);
        Stream& stream = streams_[number];
        stream.line += '\n'; // the last line may lack its newline
        if (stream.line.size() > 1)
            (void)cut_lines(number, std::string::npos);
    }
    report_dropped(true);
    collected_ = nullptr;
    finished_ = true;
    outputs_.remove(*this);
    return last_words_;
}

Outputs::Source::Turn Outputs::Source::read(std::size_t number) {
    constexpr std::size_t kMaxLines = 1000; // per turn: others wait for theirs
    Stream& stream = streams_[number];
    if (!stream.whole) {
        char buffer[65536]; // the capacity of a pipe (pipe(7))
        ssize_t bytes;
        {
            const std::lock_guard lock(offsets_);
            bytes = ::read(stream.fd, buffer, sizeof(buffer));
            if (bytes > 0)
                stream.read += static_cast<std::uint64_t>(bytes);
        }
        if (bytes <= 0) {
            report_dropped(false);
            return bytes == 0 ? Turn::over : Turn::wait;
        }
        stream.line.append(buffer, static_cast<std::size_t>(bytes));
    }
    return cut_lines(number, kMaxLines) ? Turn::more : Turn::pause;
}

bool Outputs::Source::cut_lines(std::size_t number, std::size_t max_lines) {
    Stream& stream = streams_[number];
    bool within = true;
    std::size_t begin = 0, lines = 0;
    for (stream.whole = true; lines < max_lines; ++lines) {
        const std::size_t end = stream.line.find('\n', begin);
        std::size_t length = std::min(end, stream.line.size()) - begin;
        if (end == std::string::npos && length <= kLongestLine) {
            stream.whole = false;
            break;
        }
        std::size_t with_end = length + 1;
        if (length > kLongestLine)
            with_end = length = kLongestLine;
        {
            const std::lock_guard lock(offsets_);
            const std::uint64_t last = stream.line_offset + begin + with_end - 1;
            for (; !stream.markers.empty() && stream.markers.front().offset <= last; stream.markers.pop_front())
                stream.request_id = std::move(stream.markers.front().request_id);
        }
        within = emit_line(number, std::string_view(stream.line).substr(begin, length)) && within;
        begin += with_end;
    }
    stream.line.erase(0, begin);
    stream.line_offset += begin;
    return within;
}

bool Outputs::Source::emit_line(std::size_t number, std::string_view text) {
    const bool ours = number == 1 && text.starts_with(kOurPrefix); // from our own code, about the program
    if (ours) {
        text.remove_prefix(kOurPrefix.size());
        last_words_ = text;
    }
    if (const std::uint64_t now = now_ns(); !rate_->take(text.size() + kLineBytes, now)) {
        if (dropped_lines_++ == 0)
            dropped_since_ns_ = now;
        dropped_bytes_ += text.size();
        if (now - dropped_since_ns_ > kReportDroppedNs)
            report_dropped(true);
        return false;
    }
    report_dropped(false);
    LogLine line;
    line.function = function_;
    line.version = version_;
    line.stream = ours ? "daemon" : number == 1 ? "err" : "out";
    line.request_id = streams_[number].request_id;
    line.text = text;
    say(std::move(line));
    return true;
}

// Reports dropped lines: at most once a second, or `at_end`.
void Outputs::Source::report_dropped(bool at_end) {
    const std::uint64_t now = now_ns();
    if (dropped_lines_ == 0 || (!at_end && now - dropped_since_ns_ < kSecondNs))
        return;
    LogLine line;
    line.function = function_;
    line.version = version_;
    line.stream = "daemon";
    line.text = fmt::format(
        "{} lines ({} KiB) within {:.1f} s are not here: it printed more than {} KiB a second (serve --log-rate)",
        dropped_lines_, (dropped_bytes_ + 1023) / 1024, static_cast<double>(now - dropped_since_ns_) / 1e9,
        outputs_.bytes_a_second_ / 1024);
    dropped_lines_ = dropped_bytes_ = 0;
    will_tell_ = false;
    say(std::move(line));
}

bool Outputs::Source::has_to_tell() { return dropped_lines_ > 0 && !std::exchange(will_tell_, true); }

void Outputs::Source::say(LogLine line) {
    if (collected_)
        collected_->push_back(std::move(line));
    else
        outputs_.on_line_(std::move(line));
}

} // namespace kvmserver::daemon
