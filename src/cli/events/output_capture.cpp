#include "src/cli/events/output_capture.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <iostream>

#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

using tinykvm::UniqueFd;

constexpr std::size_t kLongest = 3000; // bytes of a line, so that an event is one write to a pipe (PIPE_BUF)

// Makes `number` the write end of a new pipe. Returns the read end.
UniqueFd redirected(int number) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) < 0)
        tinykvm::throw_errno("pipe2");
    const UniqueFd write_end(ends[1]);
    UniqueFd read_end(ends[0]);
    ::fcntl(read_end.get(), F_SETFL, O_NONBLOCK);
    if (::dup2(write_end.get(), number) < 0)
        tinykvm::throw_errno("dup2");
    return read_end;
}

UniqueFd copy_of(int number) {
    UniqueFd copy(::fcntl(number, F_DUPFD_CLOEXEC, 3));
    if (!copy)
        tinykvm::throw_errno("copy a descriptor");
    return copy;
}

void flush() {
    std::cout.flush();
    std::fflush(stdout);
}

} // namespace

OutputCapture::OutputCapture(OnLine on_line)
    : on_line_(std::move(on_line)),
      over_(::eventfd(0, EFD_CLOEXEC)), streams_{{{"stdout", STDOUT_FILENO, copy_of(STDOUT_FILENO), {}},
                                                  {"stderr", STDERR_FILENO, copy_of(STDERR_FILENO), {}}}} {
    if (!over_)
        tinykvm::throw_errno("eventfd");
    flush();
    for (Stream& stream : streams_)
        stream.read_end = redirected(stream.number);
    thread_ = std::thread([this] {
        sigset_t all; // signals are for the main thread
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
        read_all();
    });
}

// A process that was left behind may keep the pipes open, so their end is not waited for.
OutputCapture::~OutputCapture() {
    flush();
    for (const Stream& stream : streams_)
        ::dup2(stream.before.get(), stream.number);
    const std::uint64_t one = 1;
    (void)!::write(over_.get(), &one, sizeof one);
    thread_.join();
}

void OutputCapture::read_all() {
    for (;;) {
        pollfd wanted[] = {
            {over_.get(), POLLIN, 0}, {streams_[0].read_end.get(), POLLIN, 0}, {streams_[1].read_end.get(), POLLIN, 0}};
        if (::poll(wanted, 3, -1) < 0 && errno != EINTR)
            return;
        for (Stream& stream : streams_)
            while (read(stream)) {
            }
        if (wanted[0].revents == 0)
            continue;
        for (Stream& stream : streams_)
            lines(stream, true);
        return;
    }
}

bool OutputCapture::read(Stream& stream) {
    char buffer[4096];
    const ssize_t count = ::read(stream.read_end.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR)
        return true;
    if (count <= 0)
        return false;
    stream.rest.append(buffer, static_cast<std::size_t>(count));
    lines(stream, false);
    return true;
}

void OutputCapture::lines(Stream& stream, bool at_end) {
    std::size_t from = 0;
    for (std::string& rest = stream.rest; from < rest.size();) {
        const std::size_t newline = rest.find('\n', from);
        const std::size_t length = (newline == rest.npos ? rest.size() : newline) - from;
        if (newline == rest.npos && length < kLongest && !at_end)
            break;
        const std::size_t taken = std::min(length, kLongest);
        on_line_(stream.name, rest.substr(from, taken));
        from += taken + (taken == length && newline != rest.npos ? 1 : 0);
    }
    stream.rest.erase(0, from);
}

} // namespace kvmserver::cli
