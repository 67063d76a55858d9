// The interface of include/tinykvm/tinykvm.h: exceptions become errors, and C's arguments our own types.
#include "include/tinykvm/tinykvm.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "src/embed/callable_image.hpp"
#include "src/embed/callable_machine.hpp"
#include "src/embed/settings.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/text.hpp"

using namespace kvmserver::embed;
using tinykvm::ExitCode;
using tinykvm::UserError;

struct tinykvm_program {
    Settings settings;
    Listener listener;
};

struct tinykvm_image {
    std::shared_ptr<const CallableImage> image;
};

struct tinykvm_machine {
    CallableMachine* machine; // of `own`, or another's in a rehearsal
    std::unique_ptr<CallableMachine> own;
};

namespace {

static_assert(TINYKVM_ERROR_FAILURE == static_cast<int>(ExitCode::failure));
static_assert(TINYKVM_ERROR_USAGE == static_cast<int>(ExitCode::usage));
static_assert(TINYKVM_ERROR_NOT_FOUND == static_cast<int>(ExitCode::not_found));
static_assert(TINYKVM_ERROR_NOT_PERMITTED == static_cast<int>(ExitCode::not_permitted));
static_assert(TINYKVM_ERROR_NOT_READY == static_cast<int>(ExitCode::unreachable));
static_assert(TINYKVM_ERROR_BAD_SNAPSHOT == static_cast<int>(ExitCode::bad_snapshot));
static_assert(TINYKVM_ERROR_NO_KVM == static_cast<int>(ExitCode::no_kvm));
static_assert(TINYKVM_STOPPED == static_cast<int>(OutcomeKind::stopped));

void put_text(char (&to)[TINYKVM_MESSAGE_BYTES], const std::string& text) {
    constexpr std::size_t kMargin = 32; // printable() may go a little beyond
    const std::string shown = tinykvm::printable(text, TINYKVM_MESSAGE_BYTES - kMargin);
    const std::size_t bytes = std::min(shown.size(), sizeof(to) - 1);
    std::memcpy(to, shown.data(), bytes);
    to[bytes] = '\0';
}

void put_error(tinykvm_error* error, int code, const std::string& text) {
    if (!error)
        return;
    error->code = code;
    put_text(error->message, text);
}

// What `work` returns, or `failed` with the error filled in.
template <class T, class Work>
T guarded(tinykvm_error* error, T failed, Work&& work) {
    try {
        return work();
    } catch (const UserError& e) {
        put_error(error, static_cast<int>(e.code()), e.what());
    } catch (const std::bad_alloc&) {
        put_error(error, TINYKVM_ERROR_FAILURE, "out of memory");
    } catch (const std::exception& e) {
        put_error(error, TINYKVM_ERROR_FAILURE, e.what());
    }
    return failed;
}

[[noreturn]] void misuse(const std::string& what) { throw UserError(ExitCode::usage, what); }

const char* text_of(const char* text, const char* what) {
    if (!text)
        misuse(fmt::format("{} is a null pointer", what));
    return text;
}

template <class T>
T& object_of(T* object, const char* what) {
    if (!object)
        misuse(fmt::format("the {} is a null pointer", what));
    return *object;
}

CallableMachine& machine_of(tinykvm_machine* machine) { return *object_of(machine, "machine").machine; }

Argument argument_of(const tinykvm_argument& given, std::size_t number) {
    const auto buffer = [&](std::size_t bytes, bool in, bool out) {
        if (!given.data && bytes != 0)
            misuse(fmt::format("argument {}: its data is a null pointer", number));
        return Buffer{static_cast<std::byte*>(given.data), bytes, in, out};
    };
    switch (given.kind) {
    case TINYKVM_INTEGER: return given.integer;
    case TINYKVM_DOUBLE: return Real{given.real, false};
    case TINYKVM_FLOAT: return Real{given.real, true};
    case TINYKVM_STRING:
        return buffer(std::strlen(text_of(static_cast<const char*>(given.data), "a string")) + 1, true, false);
    case TINYKVM_IN: return buffer(given.bytes, true, false);
    case TINYKVM_OUT: return buffer(given.bytes, false, true);
    case TINYKVM_IN_OUT: return buffer(given.bytes, true, true);
    default: misuse(fmt::format("argument {}: there is no kind {}", number, given.kind));
    }
}

void put_outcome(tinykvm_outcome& to, const Outcome& from) {
    to.kind = static_cast<int>(from.kind);
    to.number = from.number;
    to.address = from.address;
    to.integer = from.integer;
    to.real = std::bit_cast<double>(from.real);
    to.real_float = std::bit_cast<float>(static_cast<std::uint32_t>(from.real));
    to.exits = from.exits;
    put_text(to.message, from.message);
}

} // namespace

extern "C" {

const char* tinykvm_version(void) { return TINYKVM_VERSION; }

tinykvm_program* tinykvm_program_new(const char* path, tinykvm_error* error) {
    return guarded<tinykvm_program*>(error, nullptr, [&] {
        auto program = std::make_unique<tinykvm_program>();
        program->settings.program = text_of(path, "the path of the program");
        if (program->settings.program.empty())
            misuse("the path of the program is empty");
        return program.release();
    });
}

void tinykvm_program_free(tinykvm_program* program) { delete program; }

int tinykvm_program_argument(tinykvm_program* program, const char* text, tinykvm_error* error) {
    return guarded(error, -1, [&] {
        object_of(program, "program").settings.arguments.emplace_back(text_of(text, "an argument"));
        return 0;
    });
}

int tinykvm_program_set(tinykvm_program* program, const char* option, const char* value, tinykvm_error* error) {
    return guarded(error, -1, [&] {
        object_of(program, "program").settings.set(text_of(option, "the name of an option"), text_of(value, "a value"));
        return 0;
    });
}

void tinykvm_program_output(tinykvm_program* program, tinykvm_output output, void* user) {
    if (program && output)
        program->listener.output = [=](int stream, std::string_view bytes) {
            output(user, stream, bytes.data(), bytes.size());
        };
    else if (program)
        program->listener.output = nullptr;
}

void tinykvm_program_log(tinykvm_program* program, tinykvm_log log, void* user) {
    if (program && log)
        program->listener.log = [=](const std::string& line) { log(user, line.c_str()); };
    else if (program)
        program->listener.log = nullptr;
}

tinykvm_image* tinykvm_boot(const tinykvm_program* program, tinykvm_error* error) {
    return guarded<tinykvm_image*>(error, nullptr, [&] {
        const tinykvm_program& from = object_of(program, "program");
        return new tinykvm_image{CallableImage::boot(from.settings, from.listener)};
    });
}

tinykvm_image* tinykvm_restore(const char* file, const tinykvm_program* options, tinykvm_error* error) {
    return guarded<tinykvm_image*>(error, nullptr, [&] {
        return new tinykvm_image{CallableImage::restore(text_of(file, "the file's name"),
                                                        options ? &options->settings : nullptr,
                                                        options ? options->listener : Listener())};
    });
}

int tinykvm_save(const tinykvm_image* image, const char* file, int (*rehearse)(void* user, tinykvm_machine* machine),
                 void* user, tinykvm_error* error) {
    return guarded(error, -1, [&] {
        std::function<void(CallableMachine&)> rehearsal;
        if (rehearse)
            rehearsal = [&](CallableMachine& machine) {
                tinykvm_machine shown{&machine, nullptr};
                if (const int refused = rehearse(user, &shown); refused != 0)
                    throw UserError(ExitCode::failure,
                                    fmt::format("the rehearsal returned {}: nothing is saved", refused));
            };
        object_of(image, "image").image->save(text_of(file, "the file's name"), rehearsal);
        return 0;
    });
}

void tinykvm_image_free(tinykvm_image* image) { delete image; }

uint64_t tinykvm_symbol(const tinykvm_image* image, const char* name, tinykvm_error* error) {
    return guarded(error, std::uint64_t{0},
                   [&] { return object_of(image, "image").image->symbol(text_of(name, "the symbol's name")); });
}

tinykvm_machine* tinykvm_machine_new(const tinykvm_image* image, unsigned flags, tinykvm_error* error) {
    return guarded<tinykvm_machine*>(error, nullptr, [&] {
        if ((flags & ~unsigned{TINYKVM_EPHEMERAL}) != 0)
            misuse(fmt::format("a machine has no flag {:#x}", flags & ~unsigned{TINYKVM_EPHEMERAL}));
        auto machine = std::make_unique<tinykvm_machine>();
        machine->own =
            std::make_unique<CallableMachine>(object_of(image, "image").image, (flags & TINYKVM_EPHEMERAL) != 0);
        machine->machine = machine->own.get();
        return machine.release();
    });
}

void tinykvm_machine_free(tinykvm_machine* machine) {
    if (machine && machine->own) // not that of a rehearsal
        delete machine;
}

int tinykvm_host_call(tinykvm_machine* machine, unsigned number, tinykvm_host_function function, void* user,
                      tinykvm_error* error) {
    return guarded(error, -1, [&] {
        CallableMachine::HostFunction wrapped;
        if (function)
            wrapped = [=](std::span<const std::uint64_t, 5> arguments) {
                return function(user, machine, arguments.data());
            };
        machine_of(machine).set_host_function(number, std::move(wrapped));
        return 0;
    });
}

int tinykvm_call(tinykvm_machine* machine, uint64_t function, const tinykvm_argument* arguments, size_t count,
                 double seconds, tinykvm_outcome* outcome, tinykvm_error* error) {
    return guarded(error, -1, [&] {
        tinykvm_outcome& out = object_of(outcome, "outcome");
        constexpr std::size_t kMost = 14; // registers
        if (count > kMost)
            misuse(fmt::format("{} arguments: at most {} are possible", count, kMost));
        if (count != 0 && !arguments)
            misuse("the arguments are a null pointer");
        std::vector<Argument> all;
        for (std::size_t i = 0; i < count; ++i)
            all.push_back(argument_of(arguments[i], i + 1));
        put_outcome(out, machine_of(machine).call(function, all, seconds));
        return 0;
    });
}

void tinykvm_stop(tinykvm_machine* machine) {
    if (machine)
        machine->machine->stop();
}

int tinykvm_reset(tinykvm_machine* machine, tinykvm_error* error) {
    return guarded(error, -1, [&] {
        machine_of(machine).reset();
        return 0;
    });
}

int tinykvm_read(tinykvm_machine* machine, uint64_t from, void* to, size_t bytes, tinykvm_error* error) {
    return guarded(error, -1, [&] {
        if (!machine_of(machine).read(from, {static_cast<std::byte*>(to), bytes}))
            misuse(fmt::format("the program cannot read {} bytes at {:#x}", bytes, from));
        return 0;
    });
}

int tinykvm_write(tinykvm_machine* machine, uint64_t to, const void* from, size_t bytes, tinykvm_error* error) {
    return guarded(error, -1, [&] {
        if (!machine_of(machine).write(to, {static_cast<const std::byte*>(from), bytes}))
            misuse(fmt::format("the program cannot write {} bytes at {:#x}", bytes, to));
        return 0;
    });
}

int64_t tinykvm_read_string(tinykvm_machine* machine, uint64_t from, char* to, size_t room, tinykvm_error* error) {
    return guarded(error, std::int64_t{-1}, [&] {
        const auto bytes = machine_of(machine).read_string(from, {to, room});
        if (!bytes)
            misuse(
                fmt::format("there is no string of less than {} bytes at {:#x} that the program can read", room, from));
        return static_cast<std::int64_t>(*bytes);
    });
}

} // extern "C"
