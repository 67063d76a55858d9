// The access log: a line for each request, whatever is in it, and a file that may be moved away.
#include "src/daemon/access_log.hpp"

#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/store/samples.hpp"
#include "tinykvm/base/error.hpp"

using namespace kvmserver;
using daemon::AccessLog;
using daemon::AccessRecord;
using nlohmann::json;

namespace {

AccessRecord sample() {
    AccessRecord record;
    record.ms = 1'800'000'000'123;
    record.request_id = "0123456789abcdef";
    record.method = "GET";
    record.host = "a.example";
    record.path = "/x";
    record.status = 404;
    record.outcome = "no_route";
    return record;
}

std::vector<json> lines_of(const std::filesystem::path& file) {
    std::vector<json> lines;
    std::istringstream text(store::test::read_text(file));
    for (std::string line; std::getline(text, line);)
        lines.push_back(json::parse(line));
    return lines;
}

} // namespace

TEST_CASE("a request that no function got is logged without a function") {
    const store::test::TempFolder folder;
    AccessLog log((folder / "log").string());
    CHECK(log.wanted());
    log.write(sample(), nullptr);
    const auto lines = lines_of(folder / "log");
    REQUIRE(lines.size() == 1);
    CHECK(lines[0].at("ts") == "2027-01-15T08:00:00.123Z");
    CHECK(lines[0].at("status") == 404);
    CHECK(lines[0].at("cold") == false);
    for (const char* absent : {"function", "version", "traceparent", "restore_us", "cpu_us"})
        CHECK_FALSE(lines[0].contains(absent));
}

TEST_CASE("a function's request is logged with its version and what it cost; only a cold one with its restore") {
    const store::test::TempFolder folder;
    AccessLog log((folder / "log").string());
    daemon::FunctionVersion::Facts facts;
    facts.function = "hello";
    facts.version = 4;
    daemon::Request request(std::make_shared<daemon::FunctionVersion>(facts), "0123456789abcdef");
    request.cpu_us = 77;
    request.restore_us = 5;
    log.write(sample(), &request);
    request.cold = true;
    log.write(sample(), &request);
    const auto lines = lines_of(folder / "log");
    REQUIRE(lines.size() == 2);
    CHECK(lines[0].at("function") == "hello");
    CHECK(lines[0].at("version") == 4);
    CHECK(lines[0].at("cpu_us") == 77);
    CHECK_FALSE(lines[0].contains("restore_us"));
    CHECK(lines[1].at("cold") == true);
    CHECK(lines[1].at("restore_us") == 5);
}

TEST_CASE("what a client sends does not break a line of the log") {
    const store::test::TempFolder folder;
    AccessLog log((folder / "log").string());
    AccessRecord record = sample();
    record.path = "/\"\n{}\xff\xfe";
    log.write(record, nullptr);
    const auto lines = lines_of(folder / "log");
    REQUIRE(lines.size() == 1);
    CHECK(lines[0].at("path").get<std::string>().starts_with("/\"\n{}"));
}

TEST_CASE("a log that was moved away goes on in a new file once it is told so") {
    const store::test::TempFolder folder;
    AccessLog log((folder / "log").string());
    log.write(sample(), nullptr);
    std::filesystem::rename(folder / "log", folder / "old");
    log.write(sample(), nullptr);
    CHECK(lines_of(folder / "old").size() == 2);
    log.reopen();
    log.write(sample(), nullptr);
    CHECK(lines_of(folder / "old").size() == 2);
    CHECK(lines_of(folder / "log").size() == 1);
    struct stat facts {};
    REQUIRE(::stat((folder / "log").c_str(), &facts) == 0);
    CHECK((facts.st_mode & 077) == 0); // it names who asked for what
}

TEST_CASE("a log that cannot be opened is refused by the name of its option; the open one goes on") {
    CHECK_FALSE(AccessLog("").wanted());
    try {
        const AccessLog log("/no/such/folder/log");
        FAIL("it was opened");
    } catch (const tinykvm::UserError& error) {
        CHECK(std::string(error.what()).find("--access-log /no/such/folder/log: ") == 0);
    }
    const store::test::TempFolder folder;
    std::filesystem::create_directory(folder / "sub");
    AccessLog log((folder / "sub/log").string());
    std::filesystem::rename(folder / "sub", folder / "away");
    CHECK_THROWS_AS(log.reopen(), tinykvm::UserError);
    log.write(sample(), nullptr);
    CHECK(lines_of(folder / "away/log").size() == 1);
}
