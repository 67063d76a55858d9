// Booting, saving and restoring.
#include <filesystem>
#include <fstream>
#include <functional>
#include <vector>

#include <unistd.h>

#include "tests/e2e/library/cases.hpp"

using cases::callee;
using cases::error_of;
using cases::has;
using cases::image;
using cases::program;
using tinykvm::Image;
using tinykvm::Kind;
using tinykvm::Machine;
using tinykvm::Program;

namespace {

// A folder that is removed at the end.
struct Folder {
    std::string path = (std::filesystem::temp_directory_path() / "library-XXXXXX").string();
    Folder() { REQUIRE(::mkdtemp(path.data())); }
    ~Folder() { std::filesystem::remove_all(path); }
    std::string operator/(const char* name) const { return path + "/" + name; }
};

} // namespace

TEST_CASE("a program that is static, or a PIE without libraries") {
    for (const char* name : {"/callee_static", "/callee_static_pie"}) {
        INFO(name);
        const Image booted = Image::boot(program(cases::folder() + name));
        Machine machine(booted, Kind::ephemeral);
        CHECK(*machine.call(booted.function<int()>("count")) == 201);
        CHECK(*machine.call(booted.function<int(int)>("in_thread"), 3) == 203);
    }
}

TEST_CASE("a symbol counts as ready") {
    for (const auto& [symbol, counter] : {std::pair{"main", 101}, std::pair{"started", 201}})
        for (const char* name : {"/callee", "/callee_static"}) {
            INFO(symbol);
            // Alone it would never be ready.
            const Image booted = Image::boot(program(cases::folder() + name, "never").set("ready-at", symbol));
            Machine machine(booted, Kind::ephemeral);
            CHECK(*machine.call(booted.function<int()>("count")) == counter);
            CHECK(*machine.call(booted.function<int()>("count")) == counter);
            CHECK(machine.call(booted.function<void()>("started"))); // its code is whole
        }
    error_of(TINYKVM_ERROR_NOT_FOUND, [] { Image::boot(program(callee()).set("ready-at", "no_such_thing")); });
    // It is never executed.
    CHECK(
        has(error_of(TINYKVM_ERROR_NOT_READY, [] { Image::boot(program(callee(), "exits").set("ready-at", "count")); }),
            "before it reached count"));
}

TEST_CASE("a program is ready once its other threads wait") {
    const Image booted = Image::boot(program(callee(), "works"));
    Machine machine(booted);
    CHECK(*machine.call(booted.function<int()>("count")) == 501);
}

TEST_CASE("programs that are never ready") {
    const auto error = [](const char* argument) {
        return error_of(TINYKVM_ERROR_NOT_READY, [&] {
            Image::boot(program(callee(), argument).set("max-boot-time", std::to_string(0.3 * cases::slowness())));
        });
    };
    CHECK(has(error("exits"), "exited with status 7 before it called tinykvm_ready()"));
    CHECK(has(error("never"), "max-boot-time"));
    CHECK(has(error("pauses"), "waits for what will never come, before it called tinykvm_ready()"));
}

TEST_CASE("programs that cannot be booted") {
    CHECK(has(error_of(TINYKVM_ERROR_NOT_FOUND, [] { Image::boot(program("/no/such/program")); }), "/no/such/program"));
    CHECK(has(error_of(TINYKVM_ERROR_FAILURE, [] { Image::boot(program("/")); }), "/"));
    CHECK(has(error_of(TINYKVM_ERROR_NOT_FOUND, [] { Image::boot(program("no-such-program-in-path")); }),
              "no-such-program-in-path"));
    error_of(TINYKVM_ERROR_USAGE, [] { Program(""); });
}

TEST_CASE("options that are nonsense") {
    Program some(callee());
    for (const auto& [option, value] : std::vector<std::pair<const char*, const char*>>{{"no-such-option", "1"},
                                                                                        {"max-boot-time", "soon"},
                                                                                        {"max-boot-time", "-1"},
                                                                                        {"max-boot-time", "1s"},
                                                                                        {"max-boot-time", ""},
                                                                                        {"max-main-memory", "0"},
                                                                                        {"max-main-memory", "1e99"},
                                                                                        {"max-request-time", "0"},
                                                                                        {"max-request-time", "nan"},
                                                                                        {"allow-all", "yes"},
                                                                                        {"allow-read", ""},
                                                                                        {"allow-connect", "8080"},
                                                                                        {"volume", "/etc"},
                                                                                        {"env", "NAME"},
                                                                                        {"env", "=x"},
                                                                                        {"cpu", "486"},
                                                                                        {"ready-at", ""},
                                                                                        {"max-open-files", "3"},
                                                                                        {"verbose", "1"},
                                                                                        {"code-as-is", ""}}) {
        INFO(option << "=" << value);
        CHECK(has(error_of(TINYKVM_ERROR_USAGE, [&, o = option, v = value] { some.set(o, v); }), option));
    }
}

TEST_CASE("an image is saved and restored") {
    const Folder folder;
    const std::string file = folder / "callee.snap";
    image().save(file);
    const Image restored = Image::restore(file);
    Machine machine(restored), clean(restored, Kind::ephemeral);
    const auto count = restored.function<int()>("count");
    for (int i = 1; i <= 3; ++i) {
        CHECK(*machine.call(count) == 200 + i);
        CHECK(*clean.call(count) == 201);
    }
    CHECK(*machine.call(restored.function<int(int)>("in_thread"), 7) == 210);

    SECTION("what was restored is saved again") {
        const std::string again = folder / "again.snap";
        restored.save(again);
        const Image third = Image::restore(again);
        CHECK(*Machine(third).call(third.function<int()>("count")) == 201);
    }
    SECTION("its options replace those of the file") {
        Program options = program("unused");
        options.set("allow-read", "/etc/hostname").set("max-request-time", std::to_string(0.1 * cases::slowness()));
        const Image other = Image::restore(file, options);
        Machine allowed(other, Kind::ephemeral);
        const auto open_file = other.function<int(std::string_view)>("open_file");
        CHECK(*clean.call(open_file, "/etc/hostname") == -2);
        CHECK(*allowed.call(open_file, "/etc/hostname") >= 3);
        const auto result = allowed.call(other.function<void()>("spin"));
        REQUIRE_FALSE(result);
        CHECK(result.fault().kind == TINYKVM_TIMED_OUT);
    }
}

TEST_CASE("a rehearsal has no effect, and its pages are there first") {
    const Folder folder;
    const std::string file = folder / "callee.snap", written = folder / "written";
    const Image booted = Image::boot(program(callee()).set("allow-write", folder.path));
    const auto write_file = booted.function<int(std::string_view, std::string_view)>("write_file");
    int calls = 0;
    booted.save(file, [&](Machine& machine) {
        CHECK(*machine.call(write_file, written, "text") < 0);
        CHECK(*machine.call(booted.function<int()>("count")) == 201);
        ++calls;
    });
    CHECK(calls == 1);
    CHECK_FALSE(std::filesystem::exists(written));
    const Image restored = Image::restore(file);
    Machine machine(restored);
    CHECK(*machine.call(restored.function<int()>("count")) == 201);
    CHECK(*machine.call(write_file, written, "text") == 4);
    CHECK(std::filesystem::exists(written));

    CHECK_THROWS_WITH(booted.save(folder / "none.snap", [](Machine&) { throw std::runtime_error("no"); }), "no");
    CHECK_FALSE(std::filesystem::exists(folder / "none.snap"));
}

TEST_CASE("files that cannot be restored or saved") {
    const Folder folder;
    const std::string file = folder / "callee.snap";
    CHECK(has(error_of(TINYKVM_ERROR_NOT_FOUND, [&] { Image::restore(file); }), file));
    std::ofstream(file) << "no snapshot";
    CHECK(has(error_of(TINYKVM_ERROR_BAD_SNAPSHOT, [&] { Image::restore(file); }), file));
    image().save(file);
    std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
    CHECK(has(error_of(TINYKVM_ERROR_BAD_SNAPSHOT, [&] { Image::restore(file); }), file));
    error_of(TINYKVM_ERROR_NOT_FOUND, [&] { image().save(folder / "no/such/folder/file"); });
}

TEST_CASE("a program whose file has changed since has no symbols") {
    const Folder folder;
    const std::string copy = folder / "program", file = folder / "program.snap";
    std::filesystem::copy_file(callee(), copy);
    Image::boot(program(copy)).save(file);
    CHECK(Image::restore(file).symbol("count").value != 0);
    std::filesystem::remove(copy);
    std::filesystem::copy_file(cases::folder() + "/callee_static_pie", copy);
    CHECK(has(error_of(TINYKVM_ERROR_NOT_FOUND, [&] { Image::restore(file).symbol("count"); }),
              copy + " is not the file that the image was made from"));
    std::filesystem::remove(copy);
    error_of(TINYKVM_ERROR_NOT_FOUND, [&] { Image::restore(file).symbol("count"); });
}

TEST_CASE("null pointers in C") {
    tinykvm_error error{};
    tinykvm_outcome outcome{};
    const std::vector<std::function<bool()>> refused{
        [&] { return tinykvm_program_new(nullptr, &error) == nullptr; },
        [&] { return tinykvm_program_argument(nullptr, "a", &error) == -1; },
        [&] { return tinykvm_program_set(nullptr, "env", "A=B", &error) == -1; },
        [&] { return tinykvm_boot(nullptr, &error) == nullptr; },
        [&] { return tinykvm_restore(nullptr, nullptr, &error) == nullptr; },
        [&] { return tinykvm_save(nullptr, "file", nullptr, nullptr, &error) == -1; },
        [&] { return tinykvm_symbol(nullptr, "main", &error) == 0; },
        [&] { return tinykvm_machine_new(nullptr, 0, &error) == nullptr; },
        [&] { return tinykvm_machine_new(nullptr, 2, &error) == nullptr; },
        [&] { return tinykvm_call(nullptr, 0, nullptr, 0, 0, &outcome, &error) == -1; },
        [&] { return tinykvm_call(nullptr, 0, nullptr, 1, 0, &outcome, &error) == -1; },
        [&] { return tinykvm_reset(nullptr, &error) == -1; },
        [&] { return tinykvm_read(nullptr, 0, nullptr, 0, &error) == -1; },
        [&] { return tinykvm_read_string(nullptr, 0, nullptr, 0, &error) == -1; },
    };
    for (const auto& each : refused) {
        error = {};
        CHECK(each());
        CHECK(error.code == TINYKVM_ERROR_USAGE);
        CHECK(error.message[0] != '\0');
    }
    CHECK(tinykvm_boot(nullptr, nullptr) == nullptr); // an error that nobody wants
    tinykvm_program_free(nullptr);
    tinykvm_image_free(nullptr);
    tinykvm_machine_free(nullptr);
    tinykvm_stop(nullptr);
    CHECK(std::string(tinykvm_version()) == std::to_string(TINYKVM_VERSION_MAJOR) + "." +
                                                std::to_string(TINYKVM_VERSION_MINOR) + "." +
                                                std::to_string(TINYKVM_VERSION_PATCH));
}

TEST_CASE("too many arguments") {
    tinykvm_error error{};
    tinykvm_program* program = tinykvm_program_new(callee().c_str(), &error);
    tinykvm_image* booted = tinykvm_boot(program, &error);
    REQUIRE(booted);
    tinykvm_machine* machine = tinykvm_machine_new(booted, 0, &error);
    REQUIRE(machine);
    const std::uint64_t count = tinykvm_symbol(booted, "count", &error);
    std::vector<tinykvm_argument> arguments(20);
    tinykvm_outcome outcome{};
    const auto call = [&](std::size_t n) {
        error = {};
        return tinykvm_call(machine, count, arguments.data(), n, 0, &outcome, &error);
    };
    CHECK(call(6) == 0);
    CHECK(outcome.integer == 201);
    for (const std::size_t n : {std::size_t{7}, std::size_t{15}, ~std::size_t{0}}) {
        CHECK(call(n) == -1);
        CHECK(error.code == TINYKVM_ERROR_USAGE);
    }
    arguments[1].kind = 99;
    CHECK(call(2) == -1);
    arguments[1] = {TINYKVM_IN, 0, 0, nullptr, 8};
    CHECK(call(2) == -1);
    arguments[1] = {TINYKVM_STRING, 0, 0, nullptr, 0};
    CHECK(call(2) == -1);
    char byte = 0;
    arguments[1] = {TINYKVM_OUT, 0, 0, &byte, ~std::size_t{0}};
    CHECK(call(2) == -1);
    CHECK(call(1) == 0);
    CHECK(outcome.integer == 202);
    tinykvm_image_free(booted);
    tinykvm_program_free(program);
    CHECK(call(1) == 0);
    tinykvm_machine_free(machine);
}
