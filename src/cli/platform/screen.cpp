#include "src/cli/platform/screen.hpp"

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <string_view>
#include <utility>

#include "src/common/environment.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli::platform {
namespace {

// The alternate screen, no cursor, no automatic wrap; and back.
constexpr std::string_view kEnter = "\33[?1049h\33[?25l\33[?7l\33[2J", kLeave = "\33[?7h\33[?25h\33[?1049l";
constexpr std::array<std::pair<std::string_view, Key>, 4> kArrows{
    {{"\33[C", Key::right}, {"\33OC", Key::right}, {"\33[D", Key::left}, {"\33OD", Key::left}}};
constexpr std::array kFatal{SIGINT, SIGTERM, SIGHUP, SIGQUIT};

// For the handlers. They are set before those, and never change while there is a Screen.
termios before, ours;
bool keys; // stdin is a terminal

void write_all(std::string_view text) {
    while (!text.empty()) {
        const ssize_t n = ::write(STDOUT_FILENO, text.data(), text.size());
        if (n > 0)
            text.remove_prefix(static_cast<std::size_t>(n));
        else if (errno != EINTR)
            return; // the terminal is gone
    }
}

void enter() {
    if (keys)
        ::tcsetattr(STDIN_FILENO, TCSADRAIN, &ours);
    write_all(kEnter);
}

void leave() {
    write_all(kLeave);
    if (keys)
        ::tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
}

// The handlers call only what is async-signal-safe.
void on_fatal(int signal) {
    leave();
    ::raise(signal); // SA_RESETHAND, SA_NODEFER: ends the process
}

void on_stop(int) {
    const int error = errno;
    leave();
    ::raise(SIGSTOP); // returns when the process is continued
    enter();
    errno = error;
}

void on_window(int) {}

bool ignored(int signal) {
    struct sigaction now {};
    return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

void handle(int signal, void (*handler)(int), int flags) {
    if (ignored(signal))
        return;
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = flags;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(signal, &action, nullptr);
}

void block(int how) {
    sigset_t window;
    ::sigemptyset(&window);
    ::sigaddset(&window, SIGWINCH);
    ::pthread_sigmask(how, &window, nullptr);
}

bool dumb() {
    const std::string term = environment_variable("TERM");
    return term.empty() || term == "dumb";
}

} // namespace

bool has_screen() { return ::isatty(STDOUT_FILENO) != 0 && !dumb(); }

bool has_colours() { return has_screen() && environment_variable("NO_COLOR").empty(); }

Screen::Screen() {
    keys = ::isatty(STDIN_FILENO) != 0;
    if (keys) {
        if (::tcgetattr(STDIN_FILENO, &before) != 0)
            tinykvm::throw_errno("look at the terminal");
        ours = before;
        ours.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON);
        ours.c_oflag &= ~static_cast<tcflag_t>(OPOST); // \n only goes down
        ours.c_cc[VMIN] = 1;
        ours.c_cc[VTIME] = 0;
    }
    block(SIG_BLOCK); // only ppoll() lets it in, so that no other call is interrupted
    for (const int signal : kFatal)
        handle(signal, on_fatal, SA_RESETHAND | SA_NODEFER);
    handle(SIGTSTP, on_stop, SA_RESTART);
    handle(SIGWINCH, on_window, SA_RESTART);
    enter();
}

Screen::~Screen() {
    leave();
    for (const int signal : kFatal)
        handle(signal, SIG_DFL, 0);
    handle(SIGTSTP, SIG_DFL, 0);
    handle(SIGWINCH, SIG_DFL, 0);
    block(SIG_UNBLOCK);
}

Screen::Size Screen::size() const {
    winsize window{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0 || window.ws_col == 0 || window.ws_row == 0)
        return {80, 24};
    return {window.ws_col, window.ws_row};
}

void Screen::show(const std::vector<std::string>& lines) {
    std::string text = "\33[H";
    for (std::size_t i = 0; i < lines.size(); ++i)
        text += (i ? "\r\n" : "") + lines[i] + "\33[K";
    write_all(text + "\33[J");
}

Screen::Press Screen::wait(std::chrono::steady_clock::time_point until) {
    using namespace std::chrono;
    if (pending_.empty()) {
        const auto left = std::max<nanoseconds>(until - steady_clock::now(), nanoseconds(0));
        const timespec time{static_cast<time_t>(left / seconds(1)), static_cast<long>((left % seconds(1)).count())};
        sigset_t all_in;
        ::pthread_sigmask(SIG_BLOCK, nullptr, &all_in);
        ::sigdelset(&all_in, SIGWINCH);
        pollfd input{keys ? STDIN_FILENO : -1, POLLIN, 0};
        const int ready = ::ppoll(&input, 1, &time, &all_in);
        if (ready < 0)
            return {errno == EINTR ? Key::resized : Key::ended};
        if (ready == 0)
            return {};
        char bytes[64];
        const ssize_t count = ::read(STDIN_FILENO, bytes, sizeof bytes);
        if (count <= 0)
            return {Key::ended};
        pending_.assign(bytes, static_cast<std::size_t>(count));
    }
    for (const auto& [sequence, key] : kArrows)
        if (pending_.starts_with(sequence)) {
            pending_.erase(0, sequence.size());
            return {key};
        }
    const char letter = pending_.front();
    pending_.erase(0, letter == '\33' ? pending_.size() : 1); // the sequence of a key that means nothing here
    return {Key::other, letter};
}

} // namespace kvmserver::cli::platform
