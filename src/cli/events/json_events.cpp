#include "src/cli/events/json_events.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>

#include "src/cli/command.hpp"
#include "src/cli/events/output_capture.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kBetweenProgress = std::chrono::milliseconds(200);

struct Ending {
    int signal;
    const char* line; // of a handler, which cannot compose it
};
constexpr Ending kEndings[] = {
    {SIGINT, R"({"event":"error","message":"interrupted","signal":"SIGINT","exit_code":130})"
             "\n"},
    {SIGTERM, R"({"event":"error","message":"interrupted","signal":"SIGTERM","exit_code":143})"
              "\n"},
    {SIGHUP, R"({"event":"error","message":"interrupted","signal":"SIGHUP","exit_code":129})"
             "\n"},
};

volatile sig_atomic_t events_fd = -1; // a handler has no other way to know it

void on_ending(int signal) {
    for (const Ending& ending : kEndings)
        if (ending.signal == signal)
            (void)!::write(events_fd, ending.line, std::strlen(ending.line));
    ::signal(signal, SIG_DFL);
    ::raise(signal); // ends the process when this handler returns
}

void set_endings(void (*handler)(int)) {
    for (const Ending& ending : kEndings) {
        struct sigaction now {};
        if (::sigaction(ending.signal, nullptr, &now) < 0 || now.sa_handler == SIG_IGN) // under nohup
            continue;
        struct sigaction wanted {};
        wanted.sa_handler = handler;
        ::sigfillset(&wanted.sa_mask);
        ::sigaction(ending.signal, &wanted, nullptr);
    }
}

// A signal must not put its line into the middle of another.
class WithoutSignals {
public:
    WithoutSignals() {
        sigset_t all;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_BLOCK, &all, &before_);
    }
    ~WithoutSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    WithoutSignals(const WithoutSignals&) = delete;
    WithoutSignals& operator=(const WithoutSignals&) = delete;

private:
    sigset_t before_{};
};

void write_all(int fd, std::string_view text) {
    while (!text.empty()) {
        const ssize_t count = ::write(fd, text.data(), text.size());
        if (count < 0 && errno != EINTR)
            return; // nobody reads it; the exit code still tells
        if (count > 0)
            text.remove_prefix(static_cast<std::size_t>(count));
    }
}

double seconds_since(Clock::time_point begin) {
    return std::round(std::chrono::duration<double>(Clock::now() - begin).count() * 1000) / 1000;
}

} // namespace

// Makes messages of the lines that are written to a stream.
class JsonEvents::Lines : public std::streambuf {
public:
    explicit Lines(JsonEvents& events) : events_(events) {}
    ~Lines() override { end(); }
    void end() {
        if (!line_.empty())
            tell();
    }

protected:
    int_type overflow(int_type c) override {
        if (c == '\n')
            tell();
        else if (c != traits_type::eof())
            line_ += static_cast<char>(c);
        return traits_type::not_eof(c);
    }

private:
    void tell() {
        constexpr std::string_view kPrefix = "kvmserver: ";
        events_.message(line_.starts_with(kPrefix) ? line_.substr(kPrefix.size()) : line_);
        line_.clear();
    }
    JsonEvents& events_;
    std::string line_;
};

JsonEvents::JsonEvents(int fd, Role role, bool quiet)
    : fd_(::fcntl(fd, F_DUPFD_CLOEXEC, 3)), role_(role), quiet_(quiet) {
    if (fd_ < 0)
        tinykvm::throw_errno("copy the descriptor of the events");
    if (role_ != Role::whole)
        return;
    events_fd = fd_;
    set_endings(on_ending);
    capture_ =
        std::make_unique<OutputCapture>([this](const char* stream, const std::string& text) { output(stream, text); });
}

JsonEvents::JsonEvents(std::ostream& out) : out_(&out), role_(Role::test), quiet_(false) {}

JsonEvents::~JsonEvents() {
    if (role_ == Role::whole)
        set_endings(SIG_DFL);
    capture_.reset();
    if (fd_ >= 0)
        ::close(fd_);
}

void JsonEvents::phase(const std::string& name, const std::string& what) {
    const std::lock_guard lock(mutex_);
    if (name == phase_)
        return;
    end_phase_locked("done");
    phase_ = name;
    begin_ = Clock::now();
    last_progress_ = {};
    counts_ = Object();
    if (quiet_)
        return;
    Object object{{"event", "phase"}, {"phase", name}, {"state", "started"}};
    if (!what.empty())
        object["text"] = what;
    write(object);
}

void JsonEvents::end_phase(const char* state) {
    const std::lock_guard lock(mutex_);
    end_phase_locked(state);
}

void JsonEvents::end_phase_locked(const char* state) {
    if (phase_.empty())
        return;
    Object object{{"event", "phase"}, {"phase", phase_}, {"state", state}, {"seconds", seconds_since(begin_)}};
    if (counts_.is_object())
        object.update(counts_);
    phase_.clear();
    if (!quiet_)
        write(object);
}

void JsonEvents::progress(std::uint64_t done, std::uint64_t all, const char* unit, const std::string& detail) {
    const std::lock_guard lock(mutex_);
    if (phase_.empty())
        return;
    counts_ = {{"done", done}};
    if (all > 0)
        counts_["all"] = all;
    counts_["unit"] = unit;
    if (!detail.empty())
        counts_["text"] = detail;
    const auto now = Clock::now();
    if (quiet_ || now - last_progress_ < kBetweenProgress)
        return;
    last_progress_ = now;
    Object object{{"event", "progress"}, {"phase", phase_}};
    object.update(counts_);
    write(object);
}

void JsonEvents::line(const char* event, const std::string& text) {
    if (text.empty())
        return;
    const std::lock_guard lock(mutex_);
    if (std::strcmp(event, "message") == 0)
        last_message_ = text;
    write({{"event", event}, {"text", text}});
}

void JsonEvents::output(const char* stream, const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (!quiet_)
        write({{"event", "output"}, {"stream", stream}, {"text", text}});
}

void JsonEvents::emit(const Object& object) {
    const std::lock_guard lock(mutex_);
    write(object);
}

void JsonEvents::result(const nlohmann::json& values) {
    const std::lock_guard lock(mutex_);
    last_ = {{"event", "result"}};
    last_.update(Object(values));
}

JsonEvents::Object JsonEvents::error_object(const std::string& message, int exit_code) const {
    return {{"event", "error"}, {"message", message}, {"exit_code", exit_code}};
}

void JsonEvents::error(const std::string& message, int exit_code) {
    if (role_ == Role::child)
        return this->message(message);
    const std::lock_guard lock(mutex_);
    last_ = error_object(message, exit_code);
}

int JsonEvents::finish(int exit_code) {
    if (lines_)
        lines_->end();
    end_phase(exit_code == 0 ? "done" : "failed");
    if (role_ == Role::child)
        return exit_code;
    capture_.reset(); // so that the last object is the last
    const std::lock_guard lock(mutex_);
    if (exit_code != 0 && (last_.is_null() || last_.at("event") != "error"))
        last_ = error_object(last_message_.empty() ? fmt::format("ended with status {}", exit_code) : last_message_,
                             exit_code);
    else if (last_.is_null())
        last_ = {{"event", "result"}};
    if (role_ == Role::whole)
        set_endings(SIG_DFL);
    write(last_);
    return exit_code;
}

void JsonEvents::end_with_error(const std::string& message, int exit_code) {
    const std::lock_guard lock(mutex_);
    write(error_object(message, exit_code));
    ::_exit(exit_code);
}

std::ostream& JsonEvents::messages() {
    if (!stream_) {
        lines_ = std::make_unique<Lines>(*this);
        stream_ = std::make_unique<std::ostream>(lines_.get());
    }
    return *stream_;
}

void JsonEvents::write(const Object& object) {
    // What a program or a build prints need not be UTF-8.
    const std::string text = object.dump(-1, ' ', false, Object::error_handler_t::replace) + '\n';
    if (out_) {
        *out_ << text;
        return;
    }
    const WithoutSignals quietly;
    write_all(fd_, text);
}

void warn(Context& context, const std::string& line) {
    if (context.events)
        context.events->warning(line);
    else
        context.err << "kvmserver: " << line << '\n';
}

} // namespace kvmserver::cli
