// `--json` of commands that take long: all that a person would see, as one JSON object a line (docs/COMMANDS.md).
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <string_view>

namespace kvmserver::cli {

class OutputCapture;

// Any thread may call it. The last object is a `result` or an `error`, except in the child of such a command, whose
// parent writes that one.
class JsonEvents {
public:
    using Object = nlohmann::ordered_json;
    enum class Role {
        whole, // a command; what is written to the descriptors 1 and 2 becomes events, also by its children
        child, // shares the descriptor with its parent, to whose events it adds
        test,  // a command whose streams are not those of the process
    };

    // `fd`: where events go. It is not closed. `quiet`: without phases, progress and output.
    JsonEvents(int fd, Role role, bool quiet);
    explicit JsonEvents(std::ostream& out); // Role::test
    ~JsonEvents();
    JsonEvents(const JsonEvents&) = delete;
    JsonEvents& operator=(const JsonEvents&) = delete;

    // A phase ends the one before it; the same again does nothing. `what`: for people.
    void phase(const std::string& name, const std::string& what = "");
    void end_phase(const char* state = "done");
    // Of the current phase; 0 for what is not known. A few times in a second at most; the end of the phase has the
    // last.
    void progress(std::uint64_t done, std::uint64_t all, const char* unit, const std::string& detail = "");

    void message(const std::string& text) { line("message", text); }
    void warning(const std::string& text) { line("warning", text); }
    void refusal(const std::string& text) { line("refusal", text); } // of a permission, when that ended a boot
    void output(const char* stream, const std::string& text);
    void emit(const Object& object); // at once

    // Kept until finish(), which writes one of them last.
    void result(const nlohmann::json& values);
    void error(const std::string& message, int exit_code);
    // Returns `exit_code`. A failure that nobody has explained is explained by the last message.
    int finish(int exit_code);
    // For a process that ends at once.
    void end_with_error(const std::string& message, int exit_code);

    // Where `Context::err` leads: each line becomes a message.
    std::ostream& messages();
    // A descriptor for the events of a child, to be kept open in it.
    int child_fd() const { return fd_; }
    bool quiet() const { return quiet_; }

private:
    class Lines;
    void line(const char* event, const std::string& text);
    void write(const Object& object);
    void end_phase_locked(const char* state);
    Object error_object(const std::string& message, int exit_code) const;

    int fd_ = -1; // a copy of the given one
    std::ostream* out_ = nullptr;
    const Role role_;
    const bool quiet_;
    std::recursive_mutex mutex_;
    std::string phase_, last_message_;
    std::chrono::steady_clock::time_point begin_, last_progress_;
    Object counts_;
    bool told_counts_ = true;
    Object last_; // null: none yet
    std::unique_ptr<OutputCapture> capture_;
    std::unique_ptr<Lines> lines_;
    std::unique_ptr<std::ostream> stream_;
};

// An event, or a line on `context.err`.
struct Context;
void warn(Context& context, const std::string& line);

} // namespace kvmserver::cli
