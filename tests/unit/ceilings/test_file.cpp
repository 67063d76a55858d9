// Files of ceilings, and ceilings as JSON.
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "src/ceilings/file.hpp"
#include "tests/catch.hpp"
#include "tinykvm/base/error.hpp"

using namespace kvmserver;
using nlohmann::json;

namespace {

struct File {
    explicit File(const std::string& text) {
        std::string name = "/var/tmp/kvmserver-ceilings-XXXXXX";
        ::close(::mkstemp(name.data()));
        path = name;
        std::ofstream(path) << text;
    }
    ~File() { std::filesystem::remove(path); }
    std::filesystem::path path;
};

std::string refused(const std::string& text) {
    const File file(text);
    try {
        CeilingsFile::read(file.path);
    } catch (const tinykvm::UserError& error) {
        CHECK(error.code() == tinykvm::ExitCode::usage);
        const std::string line = error.what(), name = file.path.string() + ":";
        REQUIRE(line.starts_with(name));
        CHECK(line.find('\n') == line.npos);
        return line.substr(name.size());
    }
    return "";
}

} // namespace

TEST_CASE("a section replaces what is for all, key by key, and a longer prefix a shorter one") {
    const File file(R"(
allow-read = "/srv//public/"
max-request-memory = 64
max-machines = 2
[prefix."shop-"]
max-machines = 4
max-request-time = 2.5
[prefix."shop-big-"]
max-machines = 8
)");
    const CeilingsFile read = CeilingsFile::read(file.path);
    CHECK(read.of("other").granted.read == std::vector<std::string>{"/srv/public"});
    CHECK(read.of("other").machines == 2u);
    CHECK(read.of("shop-a").machines == 4u);
    CHECK(read.of("shop-a").request_memory == 64u << 20);
    CHECK(read.of("shop-a").request_seconds == 2.5);
    CHECK(read.of("shop-big-a").machines == 8u);
    CHECK(read.of("shop-big-a").request_seconds == 2.5);
    CHECK(read.sections_of("shop-big-a").size() == 3);
    CHECK(read.sections_of("shop").size() == 1);
    CHECK(CeilingsFile().of("x") == Ceilings{});
}

TEST_CASE("a prefix ends at a word") {
    const File file("[prefix.shop]\nmax-machines = 4\n");
    const CeilingsFile read = CeilingsFile::read(file.path);
    CHECK(read.of("shop").machines == 4u);
    CHECK(read.of("shop-a").machines == 4u);
    CHECK(read.of("shopping").machines == std::nullopt);
    CHECK(read.sections_of("shop-a").size() == 2);
    CHECK(read.sections_of("shopping").size() == 1);
}

TEST_CASE("what is wrong is told with its line, and never taken for a ceiling") {
    CHECK(refused("max-machines = 1\nmax-machine = 2\n").find("2: there is no ceiling \"max-machine\"") == 0);
    CHECK(refused("\nmax-machines = \"4\"").find("2: max-machines must be a whole number from 1 to") == 0);
    CHECK(refused("max-machines = 0") != "");
    CHECK(refused("max-queue = -1") != "");
    CHECK(refused("max-main-memory = 1e9") != "");
    CHECK(refused("max-main-memory = 9223372036854775807") != ""); // MiB
    CHECK(refused("max-request-time = inf") != "");
    CHECK(refused("max-request-time = nan") != "");
    CHECK(refused("max-request-time = 0") != "");
    CHECK(refused("max-request-time = 1e300") != "");
    CHECK(refused("allow-read = [\"srv\"]").find("absolute path") != std::string::npos);
    CHECK(refused("allow-read = [\"/srv/../etc\"]").find("..") != std::string::npos);
    CHECK(refused("allow-read = true") != "");
    CHECK(refused("allow-env = [\"A*B\"]") != "");
    CHECK(refused("volumes = [\"/srv:q\"]") != "");
    CHECK(refused("allow-connect = [\"10.0.0.0/40\"]") != "");
    CHECK(refused("[prefix]\nshop = 1\n").find("2: write [prefix.") == 0);
    CHECK(refused("[prefix.\"\"]\n") != "");
    CHECK(refused("\n[prefix.Shop]\nmax-machines = 1\n").find("2: prefix \"Shop\"") == 0); // of no function
    CHECK(refused("[prefix.\"a-\"]\nmax-machine = 1\n").find("2: there is no ceiling") == 0);
    CHECK(refused("max-machines =") != "");
    CHECK_THROWS_AS(CeilingsFile::read("/nowhere/ceilings.toml"), tinykvm::UserError);
}

TEST_CASE("as text and back") {
    Ceilings all = strangers_ceilings();
    all.env = {"A", "B*"};
    all.granted.volumes->push_back({"/srv", "", true, true, false});
    all.granted.listen->push_back(tinykvm::parse_net_grant("", "unix:/run/x"));
    all.tcp_listen->push_back(ListenGrant::parse("", "10.0.0.0/8:5000-5999"));
    all.machines = all.kept_machines = all.queue = all.functions = all.versions = 3;
    all.disk_bytes = all.log_bytes = 5ull << 20;
    CHECK(ceilings_from_text(ceilings_text({all, Ceilings{}})) == std::vector<Ceilings>{all, Ceilings{}});
    CHECK(ceilings_text({}) == "");
    CHECK(ceilings_from_text("").empty());
    CHECK_THROWS_AS(ceilings_from_text("{"), tinykvm::UserError);
    CHECK_THROWS_AS(ceilings_from_text("[{\"max\": 1}]"), tinykvm::UserError);
    CHECK(to_json(all).size() == 23); // every key
}
