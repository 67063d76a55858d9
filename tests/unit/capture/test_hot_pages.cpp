// Whether a snapshot could be written where it is to go, said before the program is booted.
#include "src/capture/hot_pages.hpp"

#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/catch.hpp"
#include "tests/unit/snapshot/files.hpp"
#include "tinykvm/base/error.hpp"

using kvmserver::check_output;
using kvmserver::test::outcome_of;
using kvmserver::test::TempFolder;
using tinykvm::ExitCode;

TEST_CASE("a snapshot may go where a file is or could be") {
    const TempFolder folder;
    CHECK_NOTHROW(check_output((folder / "new.snap").string()));
    kvmserver::test::write_file(folder / "old.snap", {});
    CHECK_NOTHROW(check_output((folder / "old.snap").string()));
    const std::filesystem::path before = std::filesystem::current_path();
    std::filesystem::current_path(folder.path());
    CHECK_NOTHROW(check_output("here.snap"));
    std::filesystem::current_path(before);
}

TEST_CASE("a snapshot may not go to a folder that is not there, is a file, or to a folder itself") {
    const TempFolder folder;
    const auto missing = outcome_of([&] { check_output((folder / "no/a.snap").string()); });
    CHECK(missing.code == ExitCode::not_found);
    CHECK(missing.message.find((folder / "no").string() + " does not exist; make it first") != std::string::npos);
    kvmserver::test::write_file(folder / "file", {});
    CHECK(outcome_of([&] { check_output((folder / "file/a.snap").string()); }).code == ExitCode::not_found);
    CHECK(outcome_of([&] { check_output(folder.path().string()); }).code == ExitCode::usage);
}

TEST_CASE("a snapshot may not go where this user may not write") {
    if (::geteuid() == 0) {
        WARN("root may write everywhere");
        return;
    }
    const TempFolder folder;
    std::filesystem::permissions(folder.path(), std::filesystem::perms{0500});
    CHECK(outcome_of([&] { check_output((folder / "a.snap").string()); }).code == ExitCode::not_permitted);
    std::filesystem::permissions(folder.path(), std::filesystem::perms{0700});
}
