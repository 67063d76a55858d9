// Errors that cross library boundaries.
//
// Three tiers: a guest's mistake is an errno or a stop reason (a value, never an exception);
// a failure of the host throws HostError naming the operation and the object; a mistake of the
// user (bad file, bad option) throws UserError with the documented exit code. Our own bugs assert.
#pragma once
#include <string>
#include <system_error>

namespace tinykvm {

// Exit codes of the command line (README.md).
enum class ExitCode : int {
    ok = 0,
    failure = 1,
    usage = 2,
    not_found = 3,
    not_permitted = 4,
    conflict = 5,
    unreachable = 6,
    bad_snapshot = 7,
    no_kvm = 8,
};

// A host operation failed: what() is "OPERATION OBJECT: strerror".
class HostError : public std::system_error {
public:
    HostError(int error, const std::string& operation);
};

// Whether the error is a shortage that may pass: of memory, descriptors, threads or disk space.
bool is_shortage(int error);

// Throws HostError with the current errno.
[[noreturn]] void throw_errno(const std::string& operation);

// The user asked for something impossible. what() is one line that says what is wrong, where, and how to fix it.
class UserError : public std::runtime_error {
public:
    UserError(ExitCode code, const std::string& message);
    ExitCode code() const { return code_; }

private:
    ExitCode code_;
};

} // namespace tinykvm
