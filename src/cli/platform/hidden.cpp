#include "src/cli/platform/hidden.hpp"

#include <termios.h>
#include <unistd.h>

#include <cerrno>

#include "src/cli/platform/held_signals.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli::platform {
namespace {

// Turns the terminal's echo off while it exists.
class Hidden {
public:
    Hidden() {
        if (::tcgetattr(STDIN_FILENO, &before_) != 0)
            tinykvm::throw_errno("look at the terminal");
        termios hidden = before_;
        hidden.c_lflag &= ~static_cast<tcflag_t>(ECHO);
        ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &hidden);
    }
    ~Hidden() { ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &before_); }
    Hidden(const Hidden&) = delete;
    Hidden& operator=(const Hidden&) = delete;

private:
    termios before_{};
};

} // namespace

std::string read_line() {
    std::string line;
    for (char c; line.size() < 4096;) {
        const ssize_t count = ::read(STDIN_FILENO, &c, 1);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0 || c == '\n')
            break;
        line += c;
    }
    while (line.ends_with('\r') || line.ends_with(' '))
        line.pop_back();
    return line;
}

std::string ask_hidden(const std::string& question, Context& context) {
    context.err << question << std::flush;
    try {
        const HeldSignals held;
        const Hidden hidden;
        held.wait_readable(STDIN_FILENO); // a whole line: the terminal delivers nothing before its end
        std::string line = read_line();
        context.err << '\n';
        return line;
    } catch (const Interrupted& interrupted) { // the echo is on again
        context.err << std::endl;
        interrupted.end();
        throw tinykvm::UserError(tinykvm::ExitCode::failure, "interrupted");
    }
}

} // namespace kvmserver::cli::platform
