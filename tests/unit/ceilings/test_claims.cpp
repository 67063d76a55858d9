// Which claims are above which ceilings.
#include "src/ceilings/claims.hpp"
#include "tests/catch.hpp"
#include "tinykvm/base/error.hpp"

using namespace kvmserver;
using namespace tinykvm;
using nlohmann::json;

namespace {

Ceilings with(const json& keys) {
    return ceilings_from(keys, [](std::string_view) { return ""; });
}

std::string told(const json& keys, const Claims& claims) { return text_of(claims_above(with(keys), claims)); }

std::string reads(const std::string& path, const std::string& granted) {
    Claims claims;
    claims.permissions.read = {path};
    return told({{"allow-read", {granted}}}, claims);
}

std::string connects(const std::string& rule, const json& keys) {
    Claims claims;
    claims.permissions.connect = {parse_net_rule("--allow-connect", rule)};
    return told(keys, claims);
}

std::string listens(const std::string& rule, const std::string& granted) {
    Claims claims;
    claims.permissions.listen = {parse_listen_rule("--allow-listen", rule)};
    return told({{"allow-listen", {granted}}}, claims);
}

std::string mounts(const std::string& volume, const json& keys) {
    Claims claims;
    claims.permissions.volumes = {parse_volume(volume)};
    return told(keys, claims);
}

std::string variable(const std::string& name, const std::string& granted) {
    Claims claims;
    claims.permissions.env = {name};
    return told({{"allow-env", {granted}}}, claims);
}

} // namespace

TEST_CASE("paths are within a folder at its components") {
    CHECK(reads("/srv/data", "/srv/data") == "");
    CHECK(reads("/srv/data/x", "/srv/data") == "");
    CHECK(reads("/srv//data/./x/", "/srv/data/") == "");
    CHECK(reads("/srv/database", "/srv/data") == "--allow-read=/srv/database (granted: /srv/data)");
    CHECK(reads("/srv", "/srv/data") != "");
    CHECK(reads("/", "/srv") != "");
    CHECK(reads("/etc", "/") == "");
    CHECK(reads("/srv/data/../../etc", "/srv/data") != "");
    CHECK(reads("/srv/data/..", "/srv") != ""); // a link may be on the way
    CHECK(reads("srv", "/") != "");
    CHECK(reads("", "/") != "");
    CHECK(reads("/etc/hosts", "/srv") == ""); // readable without asking
    CHECK(reads("/etc/shadow", "/srv") != "");
    CHECK(reads(std::string("/a\n\x1b[2J"), "/srv").find('\n') == std::string::npos);
    Claims claims;
    claims.permissions.write = {"/srv/x"};
    CHECK(told({{"allow-write", json::array()}}, claims) == "--allow-write=/srv/x (granted: nothing)");
    CHECK(told({{"allow-read", {"/srv"}}}, claims) == "");
    CHECK(told({{"allow-read", {"/home"}}}, claims) ==
          "--allow-write=/srv/x (granted: /home)"); // writing implies reading
    claims.permissions = {};
    claims.permissions.read = {"/srv/x"};
    CHECK(told({{"allow-read", json::array()}, {"allow-write", {"/srv"}}}, claims) == "");
    claims.permissions = {};
    claims.permissions.implied_read = {"/home/somebody"}; // no claim: it gets what of it is granted
    CHECK(told({{"allow-read", json::array()}}, claims) == "");
}

TEST_CASE("addresses are within ranges") {
    const auto granted = [](const char* text) { return json{{"allow-connect", {text}}}; };
    CHECK(connects("10.1.2.3:5432", granted("10.0.0.0/8")) == "");
    CHECK(connects("10.1.2.3:5432", granted("10.0.0.0/8:5432")) == "");
    CHECK(connects("10.1.2.3:5432", granted("10.0.0.0/8:80")) ==
          "--allow-connect=10.1.2.3:5432 (granted: 10.0.0.0/8:80)");
    CHECK(connects("10.1.2.3", granted("10.0.0.0/8:80")) != ""); // any port
    CHECK(connects("11.0.0.1:80", granted("10.0.0.0/8")) != "");
    CHECK(connects("[::ffff:10.1.2.3]:80", granted("10.0.0.0/8")) == "");
    CHECK(connects("[fd00::1]:80", granted("fd00::/8")) == "");
    CHECK(connects("[fe00::1]:80", granted("fd00::/8")) != "");
    CHECK(connects(":80", granted("10.0.0.0/8")) != "");
    CHECK(connects(":80", granted("*")) == "");
    CHECK(connects("0.0.0.0:80", granted("10.0.0.0/8")) != ""); // as a rule it is every address of IPv4
    CHECK(connects("0.0.0.0:80", granted("0.0.0.0/0")) == "");
    CHECK(connects("[::]:80", granted("0.0.0.0/0")) != "");
    CHECK(connects("localhost:80", granted("127.0.0.0/8")) != ""); // ::1 too
    CHECK(connects("localhost:80", granted("localhost")) == "");
    CHECK(connects("localhost:80", granted("host:80")) == "");
    CHECK(connects("db.example:80", granted("db.example:80")) == "");
    CHECK(connects("db.example:80", granted("other.example")) != "");
    CHECK(connects("db.example:80", granted("10.0.0.0/8")) != "");
    CHECK(connects("db.example:80", granted("*:80")) == "");
    CHECK(connects("10.1.2.3:80", {{"allow-connect", json::array()}}) ==
          "--allow-connect=10.1.2.3:80 (granted: nothing)");
}

TEST_CASE("what is denied is not within") {
    const json denied{{"deny-connect", {"host", "169.254.0.0/16", "10.0.0.0/8:22"}}};
    CHECK(connects("192.0.2.1:80", denied) == "");
    CHECK(connects("169.254.169.254:80", denied) ==
          "--allow-connect=169.254.169.254:80 (granted: *, not host, 169.254.0.0/16, 10.0.0.0/8:22)");
    for (const char* rule :
         {"127.0.0.1:80", "127.9.9.9", "[::1]:80", "localhost:80", ":80", "0.0.0.0", "::", "[::ffff:127.0.0.1]:1"})
        CHECK(connects(rule, denied) != "");
    CHECK(connects("10.1.1.1:80", denied) == "");
    CHECK(connects("10.1.1.1:22", denied) != "");
    CHECK(connects("10.1.1.1", denied) != "");
}

TEST_CASE("sockets to listen at") {
    CHECK(listens(":8080", "*") == "");
    CHECK(listens(":8080", "*:8080") == "");
    CHECK(listens(":8081", "*:8080") == "--allow-listen=:8081 (granted: *:8080)");
    CHECK(listens("unix:/run/app/x.sock", "unix:/run/app") == "");
    CHECK(listens("unix:/run/apple.sock", "unix:/run/app") != "");
    CHECK(listens("unix:/run/app/../x", "unix:/run/app") != "");
    CHECK(listens("unix:/run/app", "*") != "");
    CHECK(listens("unix:@a", "unix:@a") == "");
    CHECK(listens("unix:@ab", "unix:@a") != "");
    CHECK(listens("unix:@ab", "unix:@a*") == "");
    CHECK(listens("unix:@a", "*") != "");
}

TEST_CASE("without a ceiling on listening, sockets at paths are within that of writing") {
    Claims claims;
    claims.permissions.listen = {parse_listen_rule("", "unix:/run/x"), parse_listen_rule("", "unix:@x"),
                                 parse_listen_rule("", ":80")};
    CHECK(told({{"allow-write", {"/srv"}}}, claims) == "--allow-listen=unix:/run/x (granted: /srv)");
    CHECK(told({{"allow-read", json::array()}}, claims) == "--allow-listen=unix:/run/x (granted: nothing)");
    CHECK(told({{"allow-write", {"/run"}}}, claims) == "");
    CHECK(told({{"max-machines", 1}}, claims) == "");
    CHECK(told({{"allow-write", json::array()}, {"allow-listen", {"*", "unix:/run", "unix:@*"}}}, claims) == "");
}

TEST_CASE("what everybody may read nobody may write to by that") {
    const Granted granted = granted_by(with({{"allow-read", {"/srv"}}}));
    CHECK(granted.write == std::vector<std::string>{"/srv"});
    CHECK(granted.read->size() == 1 + public_paths().size());
    CHECK(granted_by(with({{"allow-write", {"/srv"}}})).read == std::nullopt);
    CHECK(granted_by(with({{"max-machines", 1}})) == Granted{});
}

TEST_CASE("a snapshot's facts claim what its machine does") {
    MachineState state;
    state.permissions.read = {"/srv"};
    state.limits.open_files = 7;
    state.frames = 3;
    SnapshotFacts facts;
    facts.permissions = state.permissions;
    facts.limits = state.limits;
    facts.frames = state.frames;
    for (const Claims& claims : {claims_of(state), claims_of(facts)}) {
        CHECK(claims.permissions == state.permissions);
        CHECK(claims.limits.open_files == 7);
        CHECK(claims.image_bytes == 3 * 4096);
    }
}

TEST_CASE("volumes by their folder on the host, variables by pattern") {
    const json data{{"volumes", {"/srv/data:rw"}}};
    CHECK(mounts("/srv/data:/mnt", data) == "");
    CHECK(mounts("/srv/data/a:/mnt:rw", data) == "");
    CHECK(mounts("/srv/data:/mnt:rx", data) == "--volume=/srv/data:/mnt:rx (granted: /srv/data:rw)");
    CHECK(mounts("/srv/database:/srv/data", data) != "");
    CHECK(mounts("/:/srv/data", data) != "");
    CHECK(mounts("/srv/data:/mnt", {{"volumes", json::array()}}) == "--volume=/srv/data:/mnt:r (granted: nothing)");
    const json paths{{"allow-read", {"/srv/data"}}, {"allow-write", {"/srv/out"}}}; // it is theirs, too
    CHECK(mounts("/srv/data:/mnt", paths) == "");
    CHECK(mounts("/srv/data:/mnt:rw", paths) == "--volume=/srv/data:/mnt:rw (granted: /srv/out)");
    CHECK(mounts("/srv/out:/mnt:rw", paths) == "");
    CHECK(mounts("/etc:/mnt", paths) != "");
    CHECK(variable("APP_X", "APP_*") == "");
    CHECK(variable("APP_*", "APP_*") == "");
    CHECK(variable("APP_X*", "APP_*") == "");
    CHECK(variable("AP*", "APP_*") != "");
    CHECK(variable("*", "APP_*") != "");
    CHECK(variable("*", "*") == "");
    CHECK(variable("APPX", "APP") != "");
}

TEST_CASE("everything at once") {
    Claims claims;
    claims.permissions.all = true;
    CHECK(told({{"max-main-memory", 8192}}, claims) == "");
    CHECK(told({{"allow-read", {"/"}}}, claims) == "");
    CHECK(told({{"allow-listen", {"*", "unix:/", "unix:@*"}}, {"allow-connect", {"*", "unix:@*"}}}, claims) == "");
    CHECK(told({{"allow-listen", {"*", "unix:/"}}}, claims) != "");
    CHECK(told({{"allow-connect", {"*:80", "unix:@*"}}}, claims) != "");
    for (const char* key : {"allow-read", "allow-write", "allow-connect", "allow-listen", "allow-env"})
        CHECK(told({{key, json::array()}}, claims) == std::string("--allow-all (granted: ") + key + " nothing)");
    CHECK(told({{"deny-connect", {"host"}}}, claims) == "--allow-all (granted: allow-connect *, not host)");
    CHECK(told(to_json(strangers_ceilings()), claims).find("--allow-all") == 0);
}

TEST_CASE("limits") {
    Claims claims;
    claims.limits.request_seconds = 9;
    claims.limits.request_total_seconds = 0; // none
    claims.limits.memory = 9000ull << 20;
    claims.limits.request_memory = 129ull << 20;
    claims.limits.open_files = 1025;
    claims.image_bytes = 9000ull << 20;
    claims.machines = 5;
    const Ceilings ceilings = merged(strangers_ceilings(), with({{"max-machines", 4}, {"max-queue", 10}}));
    const auto found = claims_above(ceilings, claims);
    CHECK(text_of(found) == "--max-request-time=9 (granted: 8 s); --max-request-total without end (granted: 300 s); "
                            "--max-main-memory=9000 (granted: 8192 MiB); --max-request-memory=129 (granted: 128 MiB); "
                            "1025 open files (granted: 1024); 9000 MiB of memory in the snapshot (granted: 8192 MiB); "
                            "function.scale.max = 5 (granted: 4)");
    CHECK(std::ranges::count_if(found, &Excess::fatal) == 1);
    const Limits limits = limited_by(claims.limits, ceilings);
    CHECK(limits == Limits{});
    CHECK(limited_by(claims.limits, Ceilings{}) == claims.limits);
    CHECK(limited_by(Limits{}, with({{"max-request-cpu", 2}})).request_cpu_seconds == 2);
    CHECK(told({{"max-request-cpu", 2}}, Claims{}) == ""); // nothing was claimed, and the ceiling holds
    Claims eager;
    eager.limits.request_cpu_seconds = 3;
    CHECK(told({{"max-request-cpu", 2}}, eager) == "--max-request-cpu=3 (granted: 2 s)");
    Limits little;
    little.request_seconds = 1;
    little.request_memory = 1 << 20;
    CHECK(limited_by(little, ceilings) == little); // what is asked is not raised
}

TEST_CASE("a great many claims are told in part") {
    Claims claims;
    for (int i = 0; i < 100'000; ++i)
        claims.permissions.read.push_back("/x" + std::to_string(i));
    CHECK(claims_above(with({{"allow-read", json::array()}}), claims).size() == 20);
}

TEST_CASE("addresses of TCP functions are within ranges of addresses and ports") {
    const auto asks = [](const std::string& address, const json& granted) {
        Claims claims;
        claims.listen = {ListenAddress::parse("", address)};
        const auto found = claims_above(with({{"tcp-listen", granted}}), claims);
        if (!found.empty())
            CHECK(found.front().fatal); // it cannot listen on less
        return text_of(found);
    };
    CHECK(asks("127.0.0.1:5000", {"127.0.0.1:5000"}).empty());
    CHECK(asks("127.0.0.1:5001", {"127.0.0.1:5000"}) == "function.listen = 127.0.0.1:5001 (granted: 127.0.0.1:5000)");
    CHECK(asks("127.0.0.1:5432", json::array()) == "function.listen = 127.0.0.1:5432 (granted: nothing)");
    const json range{"127.0.0.0/8:5000-5999", "[fd00::/8]:80"};
    CHECK(asks("127.0.0.1:5000", range).empty());
    CHECK(asks("127.1.2.3:5999", range).empty());
    CHECK_FALSE(asks("127.0.0.1:4999", range).empty());
    CHECK_FALSE(asks("127.0.0.1:6000", range).empty());
    CHECK_FALSE(asks("10.0.0.1:5000", range).empty());
    CHECK(asks("[fd00::1]:80", range).empty());
    CHECK_FALSE(asks("[fe80::1]:80", range).empty());
    // Everywhere is more than any address.
    CHECK_FALSE(asks("0.0.0.0:5000", {"127.0.0.0/8:5000", "host:5000"}).empty());
    CHECK(asks("0.0.0.0:5000", {":5000-5001"}).empty());
    CHECK(asks("[::]:5000", {"*:5000"}).empty());
    CHECK(asks("0.0.0.0:5000", {"0.0.0.0:5000"}).empty());
    CHECK_FALSE(asks("[::]:5000", {"0.0.0.0:5000"}).empty());
    for (const char* wrong : {"127.0.0.1", "127.0.0.1:0", ":5-4", ":x", ":1-65536", "unix:/run:80", "a.example:80", ""})
        CHECK_THROWS_AS(with({{"tcp-listen", {wrong}}}), tinykvm::UserError);
    // A stranger may claim none, the operator any.
    CHECK(strangers_ceilings().tcp_listen == std::vector<ListenGrant>{});
    Claims any;
    any.listen = {ListenAddress::parse("", ":22")};
    CHECK(claims_above(Ceilings{}, any).empty());
}
