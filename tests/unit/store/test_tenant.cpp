// What is a tenant's, by its prefix and by what is granted to it.
#include "src/store/functions/tenant.hpp"

#include "src/store/functions/secrets.hpp"
#include "src/store/functions/tokens.hpp"
#include "src/store/snapshots/importer.hpp"
#include "src/store/snapshots/uploads.hpp"
#include "src/store/snapshots/verify.hpp"
#include "tests/catch.hpp"
#include "tests/unit/store/samples.hpp"

using namespace kvmserver;
using namespace kvmserver::store;
using namespace kvmserver::store::test;

TEST_CASE("a prefix ends where a word of the name ends") {
    for (const char* name : {"mallory", "mallory-x", "mallory--x"})
        CHECK(in_prefix(name, "mallory"));
    for (const char* name : {"mallory2", "mallory2-x", "mallor", "", "x-mallory"})
        CHECK_FALSE(in_prefix(name, "mallory"));
    CHECK(in_prefix("mallory-x", "mallory-"));
    CHECK_FALSE(in_prefix("mallory", "mallory-"));
    CHECK(in_prefix("anything", ""));
    for (const char* prefix : {"", "a", "team-", "a--", "0"})
        CHECK_NOTHROW(check_prefix(prefix));
    for (const std::string& prefix : {std::string("-"), std::string("-a"), std::string("A"), std::string("a."),
                                      std::string("a*"), std::string(64, 'a')})
        CHECK_THROWS_AS(check_prefix(prefix), BadValue);
}

TEST_CASE("patterns of names") {
    CHECK(fits_pattern("a-x", "a-*"));
    CHECK(fits_pattern("a", "a"));
    CHECK(fits_pattern("a", "*"));
    CHECK_FALSE(fits_pattern("ab", "a"));
    CHECK_FALSE(fits_pattern("ab-x", "a-*"));
    CHECK_FALSE(fits_pattern("a", "a-*"));
    for (const char* pattern : {"a", "a-*", "*", "a-b-*"})
        CHECK_NOTHROW(check_name_pattern(pattern));
    for (const char* pattern : {"", "a*", "-*", "a-", "A-*", "*-a", "a-*-*", "**"}) // "a*" would be "ab-x", too
        CHECK_THROWS_AS(check_name_pattern(pattern), BadValue);
}

TEST_CASE("hosts that functions have by their names") {
    for (const char* host : {"m-x.localhost", "*.m-x.localhost", "a.m-x.localhost", "*.a.m-x.localhost"})
        CHECK(is_own_host(host, "m-"));
    for (const char* host : {"", "localhost", "*.localhost", "v.localhost", "m-x.v.localhost", "m-x.example.com",
                             "m2.localhost", "m.localhost", ".localhost", "m-x.localhost.example.com"})
        CHECK_FALSE(is_own_host(host, "m-"));
}

TEST_CASE("what a route covers") {
    const auto covered = [](const char* grant, const char* claim) {
        return covers(Route::parse(grant), Route::parse(claim));
    };
    for (const char* claim : {"x.org", "x.org/*", "x.org/a", "x.org/a/b/*"})
        CHECK(covered("x.org", claim));
    for (const char* claim : {"a.x.org", "y.org", "*.x.org", "/*"})
        CHECK_FALSE(covered("x.org", claim));
    for (const char* claim : {"x.org/a/*", "x.org/a/b", "x.org/a/"})
        CHECK(covered("x.org/a/*", claim));
    for (const char* claim : {"x.org", "x.org/a", "x.org/ab", "x.org/b", "/a/*"}) // /a is more than /a/*
        CHECK_FALSE(covered("x.org/a/*", claim));
    CHECK(covered("x.org/a", "x.org/a/b"));
    CHECK_FALSE(covered("x.org/a", "x.org/ab"));
    for (const char* claim : {"a.x.org", "*.a.x.org", "*.x.org", "a.b.x.org/p"})
        CHECK(covered("*.x.org", claim));
    for (const char* claim : {"x.org", "ax.org", "*.org"})
        CHECK_FALSE(covered("*.x.org", claim));
    CHECK(covered("/a/*", "/a/b"));
    CHECK_FALSE(covered("/a/*", "x.org/a/b"));
}

TEST_CASE("a token for one prefix is for no other that begins alike") {
    const TempFolder folder;
    Store store(folder / "store");
    Tokens tokens(store);
    const auto info = tokens.check(tokens.create("m", kScopeDeploy, "m", {}, {"x.org", "/a/*"}));
    CHECK(info->allows(kScopeDeploy, "m-x"));
    CHECK(info->allows(kScopeDeploy, "m"));
    CHECK_FALSE(info->allows(kScopeDeploy, "mm"));
    CHECK_FALSE(info->allows(kScopeRead, ""));
    CHECK(info->routes == std::vector<std::string>{"x.org", "/a/*"});
    CHECK_THROWS_AS(tokens.create("a", kScopeDeploy, "", {}, {"x.org"}), BadValue);
    CHECK_THROWS_AS(tokens.create("b", kScopeDeploy, "b-", {}, {"no route"}), BadValue);
    CHECK_THROWS_AS(tokens.create("c", kScopeDeploy, "C"), BadValue);
}

TEST_CASE("a secret for all reaches a tenant's version only where it is granted") {
    const TempFolder folder;
    Store store(folder / "store");
    Secrets secrets(store);
    deploy(store, "m-x", 1);
    secrets.set("", "PLAIN", "1");
    secrets.set_for_all("SHARED", "2", std::vector<std::string>{"m-*"});
    secrets.set("m-x", "OWN", "3");
    CHECK(secrets.values("m-x", "").size() == 3); // the operator's version
    CHECK(secrets.values("m-x", "m-") == std::map<std::string, std::string>{{"OWN", "3"}, {"SHARED", "2"}});
    CHECK(secrets.values("m-new", "m-") == std::map<std::string, std::string>{{"SHARED", "2"}});
    CHECK(secrets.values("v-x", "v-").empty());
    CHECK(secrets.within_reach("m-x") == std::set<std::string>{"OWN", "SHARED"});
    secrets.set("", "SHARED", "4"); // a new value leaves the grants
    CHECK(secrets.values("m-x", "m-").at("SHARED") == "4");
    secrets.set_for_all("SHARED", {}, std::vector<std::string>());
    CHECK(secrets.values("m-x", "m-") == std::map<std::string, std::string>{{"OWN", "3"}});
    CHECK(secrets.values("m-x", "").at("SHARED") == "4");
    CHECK_THROWS_AS(secrets.set_for_all("NONE", {}, std::vector<std::string>{"m-*"}), NotFound);
    CHECK_THROWS_AS(secrets.set_for_all("SHARED", {}, std::vector<std::string>{"m*"}), BadValue);
}

TEST_CASE("whose things are is in the records too") {
    const TempFolder folder;
    const fs::path path = folder / "store";
    std::string etag;
    {
        Store store(path);
        deploy(store, "m-x", 1);
        DeployRequest request;
        request.function = "m-x";
        request.snapshot = Functions(store).versions("m-x").at(0).snapshot;
        request.tenant = "m-";
        etag = Functions(store).deploy(request).etag;
        Secrets(store).set_for_all("SHARED", "2", std::vector<std::string>{"m-*", "n"});
        Tokens(store).create("m", kScopeDeploy, "m-", {}, {"x.org"});
        CHECK(lines_of(verify(path)).empty());
    }
    fs::remove(path / "index.db");
    Store store(path);
    const auto versions = Functions(store).versions("m-x"); // newest first
    CHECK(versions.at(0).tenant == "m-");
    CHECK(versions.at(1).tenant.empty());
    CHECK(Functions(store).describe("m-x").etag == etag);
    CHECK(Secrets(store).list("").at(0).grants == std::vector<std::string>{"m-*", "n"});
    CHECK(Tokens(store).list().at(0).routes == std::vector<std::string>{"x.org"});
}

TEST_CASE("an import shares no chunk that is out of reach until it is committed") {
    const TempFolder folder;
    Store store(folder / "store");
    const auto pieces = sample_pieces(1);
    const SnapshotHold theirs = import(store, pieces);
    std::uint64_t all = 0;
    std::set<Digest> digests, reach{sha256(pieces.front())};
    for (const Bytes& piece : pieces)
        if (digests.insert(sha256(piece)).second)
            all += piece.size();
    const auto new_bytes = [&](std::optional<std::set<Digest>> known) {
        Importer importer(store, std::move(known));
        for (const Bytes& piece : pieces)
            importer.put(piece);
        CHECK(importer.commit().digest() == theirs.digest());
        return importer.new_bytes();
    };
    CHECK(new_bytes(std::nullopt) == 0);
    CHECK(new_bytes(std::set<Digest>()) == all);
    CHECK(new_bytes(reach) == all - pieces.front().size());
    CHECK(lines_of(verify(folder / "store")).empty()); // nothing is there twice, nothing is left behind
    CHECK(exported(store, theirs.digest()) == joined(pieces));
}

TEST_CASE("an upload is found by the token that began it") {
    const TempFolder folder;
    Store store(folder / "store");
    Uploads uploads(store);
    const std::string id = uploads.create(5, sha256("a"), 7).id;
    CHECK(uploads.info(id, 7).size == 5);
    CHECK(uploads.info(id).token == 7);
    std::string theirs, nobodys;
    try {
        uploads.info(id, 8);
    } catch (const NotFound& error) {
        theirs = error.what();
    }
    try {
        uploads.info(std::string(32, '0'), 8);
    } catch (const NotFound& error) {
        nobodys = error.what();
    }
    CHECK(theirs.replace(theirs.find(id), id.size(), std::string(32, '0')) == nobodys);
}
