// The file of remotes: what it keeps, and for whom.
#include "tests/catch.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "src/remote/remotes.hpp"
#include "tinykvm/base/error.hpp"

using namespace kvmserver::remote;
namespace fs = std::filesystem;

namespace {

class Folder {
public:
    Folder() {
        std::string name = (fs::temp_directory_path() / "remotes-XXXXXX").string();
        REQUIRE(::mkdtemp(name.data()));
        path_ = name;
    }
    ~Folder() { fs::remove_all(path_); }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    const fs::path& path() const { return path_; }

private:
    fs::path path_;
};

void write(const fs::path& file, const std::string& text, unsigned mode = 0600) {
    std::ofstream(file) << text;
    fs::permissions(file, fs::perms{mode});
}

// Of the user error that the action ends with.
tinykvm::ExitCode code_of(const std::function<void()>& action, std::string& said) {
    try {
        action();
    } catch (const tinykvm::UserError& error) {
        said = error.what();
        return error.code();
    }
    return tinykvm::ExitCode::ok;
}

unsigned mode_of(const fs::path& file) {
    struct stat facts {};
    REQUIRE(::stat(file.c_str(), &facts) == 0);
    return facts.st_mode & 07777;
}

} // namespace

TEST_CASE("remotes are kept, for their owner only") {
    const Folder folder;
    const fs::path file = folder.path() / "deep/er/remotes.json";
    Remotes(file).set("far", {"https://far:1", "kvs_1", "/ca.pem"});
    CHECK(mode_of(file) == 0600);
    const auto found = Remotes(file).find("https://far:1/");
    REQUIRE(found);
    CHECK(found->token == "kvs_1");
    CHECK(found->ca_file == "/ca.pem");
    CHECK(Remotes(file).remove("far"));
    CHECK_FALSE(Remotes(file).remove("far"));
    CHECK(Remotes(file).all().empty());
}

TEST_CASE("a file of the current folder needs no folder") {
    const Folder folder;
    const fs::path before = fs::current_path();
    fs::current_path(folder.path());
    CHECK_NOTHROW(Remotes("remotes.json").set("far", {"https://far:1", "kvs_1", ""}));
    CHECK(Remotes("remotes.json").find("far"));
    fs::current_path(before);
}

TEST_CASE("two that add a remote at the same time both keep theirs") {
    const Folder folder;
    const fs::path file = folder.path() / "remotes.json";
    Remotes first(file), second(file); // both have read it before either writes
    first.set("a", {"https://a:1", "kvs_a", ""});
    second.set("b", {"https://b:1", "kvs_b", ""});
    CHECK(Remotes(file).all().size() == 2);
    CHECK(second.find("a"));
    CHECK(first.remove("b"));
    CHECK(Remotes(file).all().size() == 1);

    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i)
        threads.emplace_back([&file, i] {
            const std::string name = "n" + std::to_string(i);
            Remotes(file).set(name, {"https://" + name + ":1", "kvs_" + name, ""});
        });
    for (std::thread& thread : threads)
        thread.join();
    CHECK(Remotes(file).all().size() == 9);
    std::size_t files = 0;
    for (const auto& entry : fs::directory_iterator(folder.path()))
        files += entry.path().filename() != "remotes.json" && !entry.path().string().ends_with(".lock");
    CHECK(files == 0); // nothing half written stays
}

TEST_CASE("a file that is somebody else's says whose it must be") {
    if (::geteuid() != 0) {
        WARN("needs root");
        return;
    }
    const Folder folder;
    const fs::path file = folder.path() / "remotes.json";
    Remotes(file).set("far", {"https://far:1", "kvs_1", ""});
    REQUIRE(::chown(file.c_str(), 12345, 0) == 0);
    try {
        const Remotes remotes(file);
        FAIL("it was read");
    } catch (const tinykvm::UserError& error) {
        const std::string said = error.what();
        CHECK(error.code() == tinykvm::ExitCode::not_permitted);
        CHECK(said.find("12345") != said.npos);
        CHECK(said.find("chown 0 " + file.string()) != said.npos);
        CHECK(said.find("chmod") == said.npos);
    }
}

TEST_CASE("remotes and tokens that others may read are refused, with the command that mends it") {
    const Folder folder;
    const fs::path file = folder.path() / "secret";
    for (const unsigned mode : {0640u, 0604u, 0660u}) {
        CAPTURE(mode);
        write(file, "{\"remotes\":{}}", mode);
        std::string said;
        CHECK(code_of([&] { const Remotes remotes(file); }, said) == tinykvm::ExitCode::not_permitted);
        CHECK(said.find("chmod 600 " + file.string()) != said.npos);
        CHECK(code_of([&] { token_from_file(file); }, said) == tinykvm::ExitCode::not_permitted);
    }
}

TEST_CASE("a file that is no list of remotes says what to do, and is not written over") {
    const Folder folder;
    const fs::path file = folder.path() / "remotes.json";
    for (const char* bad : {"", "{", "[]", "{}", R"({"remotes":{"a":7}})", R"({"remotes":{"a":{"token":"t"}}})",
                            R"({"remotes":{"a":{"url":7}}})"}) {
        CAPTURE(bad);
        write(file, bad);
        std::string said;
        CHECK(code_of([&] { const Remotes remotes(file); }, said) == tinykvm::ExitCode::usage);
        CHECK(said.find("remove it and log in again") != said.npos);
        CHECK(fs::file_size(file) == std::string(bad).size());
    }
}

TEST_CASE("a token's file holds one line, whose end is not part of it") {
    const Folder folder;
    const fs::path file = folder.path() / "token";
    std::string said;
    for (const char* good : {"kvs_1", "kvs_1\n", "kvs_1\r\n", "kvs_1 \n\n"}) {
        CAPTURE(good);
        write(file, good);
        CHECK(token_from_file(file) == "kvs_1");
    }
    for (const char* bad : {"", "\n", "kvs_1\nkvs_2\n", "kvs_1\r\nX-Header: 1"}) {
        CAPTURE(bad);
        write(file, bad);
        CHECK(code_of([&] { token_from_file(file); }, said) == tinykvm::ExitCode::usage);
    }
    CHECK(code_of([&] { token_from_file(folder.path() / "none"); }, said) == tinykvm::ExitCode::not_found);
}

TEST_CASE("a remote is found by its name before its URL, whichever way that ends") {
    const Folder folder;
    const fs::path file = folder.path() / "remotes.json";
    Remotes remotes(file);
    remotes.set("a", {"https://a:1/", "kvs_a", ""});
    remotes.set("https://a:1", {"https://b:1", "kvs_b", ""}); // a strange name
    CHECK(remotes.find("https://a:1")->token == "kvs_b");
    CHECK(remotes.find("https://a:1/")->token == "kvs_a");
    CHECK_FALSE(remotes.find("https://a"));
}
