// Damage, lost rows, hostile files, older and newer stores.
#include <fmt/format.h>
#include <sqlite3.h>

#include <array>
#include <functional>
#include <random>

#include "src/store/files/record.hpp"
#include "src/store/functions/tokens.hpp"
#include "src/store/snapshots/chunk_files.hpp"
#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tests/unit/store/samples.hpp"

using namespace kvmserver;
using namespace kvmserver::store;
using namespace kvmserver::store::test;
#ifdef KVMSERVER_CATCH2_V3
using Catch::Matchers::ContainsSubstring;
static auto Contains(const std::string& part) { return ContainsSubstring(part); }
#else
using Catch::Matchers::Contains;
#endif

namespace {

void make_sample(const fs::path& path) {
    Store store(path);
    deploy(store, "alpha", 1, {"alpha.example.com"});
    deploy(store, "alpha", 2);
    Functions(store).set_traffic("alpha", {{1, 40}, {2, 60}});
    Functions(store).set_env("alpha", "COLOUR", "red");
    Secrets(store).set("alpha", "KEY", "1234");
    deploy(store, "beta", 3, {"/beta/*"});
    Secrets(store).set("", "SHARED", "5678");
}

std::string pictures(const fs::path& path) {
    Store store(path);
    return picture(store, "alpha") + "\n" + picture(store, "beta");
}

std::string picture_of(const fs::path& path, const std::string& name) {
    Store store(path);
    return picture(store, name);
}

void sql(const fs::path& store, const std::string& text) { // as somebody with the sqlite3 program
    sqlite3* db = nullptr;
    REQUIRE(sqlite3_open((store / "index.db").c_str(), &db) == SQLITE_OK);
    CHECK(sqlite3_exec(db, text.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK);
    sqlite3_close(db);
}

bool any(const VerifyReport& report, Finding::Kind kind, const std::string& part) {
    for (const Finding& finding : report.findings)
        if (finding.kind == kind && finding.line.find(part) != std::string::npos)
            return true;
    return false;
}

} // namespace

TEST_CASE("a missing index is made anew when the store is opened") {
    const TempFolder folder;
    make_sample(folder / "store");
    std::string token;
    {
        Store store(folder / "store");
        token = Tokens(store).create("admin", kScopeAdmin);
    }
    const std::string before = pictures(folder / "store");
    fs::remove(folder / "store/index.db");
    {
        Store store(folder / "store");
        REQUIRE(store.notes().size() == 1);
        CHECK(store.notes()[0].line.find("2 functions and 3 snapshots") != std::string::npos);
        CHECK(Tokens(store).check(token));
    }
    CHECK(pictures(folder / "store") == before);
    CHECK(lines_of(verify(folder / "store")).empty());
}

TEST_CASE("a damaged index is refused, kept and made anew by verify") {
    const TempFolder folder;
    const fs::path path = folder / "store";
    make_sample(path);
    const std::string before = pictures(path);
    const std::string good = read_text(path / "index.db");
    std::mt19937 random(1);
    const int rounds = kvmserver::test::amount(60);
    for (int round = 0; round < rounds; ++round) {
        std::string bad = good;
        if (round == 0)
            bad.clear();
        else if (round == 1)
            bad = "this is no database, and was never one";
        else if (round % 3 == 0)
            bad.resize(random() % bad.size());
        else
            for (int i = 0; i < 20; ++i)
                bad[random() % (round % 2 ? bad.size() : 4096)] = static_cast<char>(random());
        for (std::size_t at = 60; at < std::min<std::size_t>(64, bad.size()); ++at)
            bad[at] = good[at]; // the schema's number: an index that says to be newer is refused, not mended
        write_text(path / "index.db", bad);
        INFO("round " << round);
        try {
            pictures(path); // may be wrong, if what was hit is a value; does not crash
        } catch (const UserError&) {
        } catch (const HostError&) {
        }
        const VerifyReport report = verify(path);
        INFO(lines_of(report));
        REQUIRE(report.clean());
        REQUIRE(pictures(path) == before);
        REQUIRE(lines_of(verify(path)).empty());
    }
    CHECK(fs::exists(path / "index.db.damaged-1"));
    write_text(path / "index.db", "no database");
    CHECK_THROWS_AS(Store(path), IndexDamaged);
    const FileLock used = [&] {
        static Folder in_use(path, real_files());
        return FileLock::shared(in_use, kIndexLock);
    }();
    VerifyOptions options;
    options.store.busy_ms = 50;
    CHECK_THROWS_WITH(verify(path, options), Contains("other processes"));
}

TEST_CASE("lost rows come back from their records, and lost records from their rows") {
    const TempFolder folder;
    const fs::path path = folder / "store";
    make_sample(path);
    std::string before = pictures(path);
    const std::array<std::function<void()>, 6> losses{
        [&] { sql(path, "DELETE FROM traffic; DELETE FROM version; DELETE FROM function"); },
        [&] {
            sql(path, "DELETE FROM version WHERE number = 1 AND function = 1; DELETE FROM traffic WHERE "
                      "function = 1");
        },
        [&] {
            sql(path, "DELETE FROM piece; DELETE FROM snapshot; DELETE FROM chunk; DELETE FROM version; "
                      "DELETE FROM traffic; DELETE FROM function");
        },
        [&] { sql(path, "UPDATE traffic SET percent = 1"); },
        [&] { fs::remove_all(path / "functions/alpha"); },
        [&] {
            fs::remove_all(path / "snapshots");
            fs::create_directory(path / "snapshots");
        },
    };
    for (std::size_t i = 0; i < losses.size(); ++i) {
        losses[i]();
        VerifyOptions look;
        look.repair = false;
        INFO("loss " << i);
        if (i != 3)
            CHECK_FALSE(verify(path, look).clean());
        const VerifyReport report = verify(path);
        INFO(lines_of(report));
        CHECK(report.clean());
        CHECK_FALSE(report.findings.empty());
        if (i != 1)
            CHECK(pictures(path) == before);
        Store store(path); // a lost share of the traffic is not invented
        Functions(store).set_traffic("alpha", {{1, 40}, {2, 60}});
        CHECK(lines_of(verify(path)).empty());
        before = picture(store, "alpha") + "\n" + picture(store, "beta");
    }
}

TEST_CASE("an index with other tables than ours is damaged") {
    const TempFolder folder;
    const fs::path path = folder / "store";
    make_sample(path);
    const std::string before = pictures(path);
    for (const char* change : {"DROP INDEX version_snapshot", "DROP TABLE token",
                               "CREATE TRIGGER t AFTER INSERT ON version BEGIN DELETE FROM function; END"}) {
        sql(path, change);
        CHECK_THROWS_AS(Store(path), IndexDamaged);
        CHECK(verify(path).clean());
        CHECK(pictures(path) == before);
    }
}

TEST_CASE("a value that was altered in the index is what its record says again") {
    const TempFolder folder;
    const fs::path path = folder / "store";
    make_sample(path);
    const std::string before = pictures(path);
    for (const char* change :
         {"UPDATE env SET value = 'blue'", "UPDATE function SET revision = revision + 5",
          "UPDATE version SET manifest = '{}' WHERE number = 1", "UPDATE snapshot SET created = 1"}) {
        INFO(change);
        sql(path, change);
        const VerifyReport report = verify(path);
        CHECK(any(report, Finding::Kind::repaired, "not what its record says"));
        CHECK(report.clean());
        CHECK(pictures(path) == before);
    }
}

TEST_CASE("what is sound in a damaged index and has no record is saved") {
    const TempFolder folder;
    const fs::path path = folder / "store";
    make_sample(path);
    const std::string before = pictures(path);
    fs::remove_all(path / "functions/alpha");
    write_text(path / "functions/beta/1.json", "spoilt");
    for (const fs::path& record : files_below(path / "snapshots"))
        fs::remove(record);
    sql(path, "DROP INDEX version_snapshot");
    // A wrong schema is found before anything is read; the rows of this index are all right.
    sql(path, "CREATE INDEX version_snapshot ON version (snapshot); UPDATE traffic SET percent = 1 WHERE "
              "function = 2");
    const VerifyReport report = verify(path);
    INFO(lines_of(report));
    CHECK(picture_of(path, "alpha") == before.substr(0, before.find("\nrevision ")));
}

TEST_CASE("the log of an index that is gone does not reach the new one") {
    const TempFolder folder;
    const fs::path path = folder / "store";
    make_sample(path);
    std::string log, before;
    {
        Store store(path);
        deploy(store, "alpha", 8);
        log = read_text(path / "index.db-wal");
        Functions(store).set_env("alpha", "COLOUR", "green"); // the log knows nothing of it
        before = picture(store, "alpha") + "\n" + picture(store, "beta");
    }
    REQUIRE(log.size() > 4096);
    fs::remove(path / "index.db");
    write_text(path / "index.db-wal", log);
    CHECK(pictures(path) == before);
    CHECK(lines_of(verify(path)).empty());
}

TEST_CASE("an index is made anew without what has lost its chunks, which is named") {
    const TempFolder folder;
    const fs::path path = folder / "store";
    make_sample(path);
    const std::string alpha = picture_of(path, "alpha");
    fs::remove(path / chunk_path(sha256(sample_pieces(3)[4])));
    fs::remove(path / "index.db");
    const VerifyReport report = verify(path);
    INFO(lines_of(report));
    CHECK(any(report, Finding::Kind::repaired, "2 functions and 2 snapshots"));
    CHECK(any(report, Finding::Kind::broken, "a live version of beta is lost"));
    CHECK(picture_of(path, "alpha") == alpha);
    Store store(path);
    CHECK(Functions(store).describe("beta").live.empty());
    CHECK(Functions(store).describe("beta").routes.size() == 1);
    CHECK(deploy(store, "beta", 3).version == 2);
}

TEST_CASE("verify names what is lost for good") {
    const TempFolder folder;
    const fs::path path = folder / "store";
    make_sample(path);
    const fs::path shared = path / chunk_path(sha256(sample_pieces(1)[0]));
    std::string bytes = read_text(shared);
    bytes[100] = static_cast<char>(bytes[100] ^ 1);
    write_text(shared, bytes);
    VerifyReport report = verify(path);
    CHECK_FALSE(report.clean());
    CHECK(any(report, Finding::Kind::broken, "is altered, and needed by alpha v1, alpha v2, beta v1"));
    CHECK(fs::exists(path / "broken"));
    CHECK(any(verify(path), Finding::Kind::broken, "is missing"));
    {
        Store store(path);
        import(store, sample_pieces(9)); // has the same first piece
    }
    CHECK(verify(path).clean());
}

TEST_CASE("orphans and leftovers go, strangers stay") {
    const TempFolder folder;
    const fs::path path = folder / "store";
    make_sample(path);
    const std::string orphan = chunk_path(sha256("orphan"));
    fs::create_directories((path / orphan).parent_path());
    write_text(path / orphan, "orphan");
    write_text(path / "tmp/put-1234", "half");
    write_text(path / "locks/import-1", "");
    write_text(path / "uploads/1234", "half");
    write_text(path / "chunks/README", "mine");
    write_text(path / "functions/notes.txt", "mine");
    fs::create_symlink("/etc/passwd", path / "functions/alpha/7.json");
    const VerifyReport report = verify(path);
    INFO(lines_of(report));
    CHECK(report.clean());
    CHECK(any(report, Finding::Kind::repaired, "1 chunks (6 bytes)"));
    CHECK(any(report, Finding::Kind::note, "chunks/README"));
    CHECK(fs::exists(path / "functions/notes.txt"));
    CHECK(fs::is_empty(path / "tmp"));
    CHECK(fs::is_empty(path / "uploads"));
    CHECK_FALSE(fs::exists(path / orphan));
    CHECK(fs::exists("/etc/passwd"));
}

TEST_CASE("hostile records are lines, never crashes") {
    const TempFolder folder;
    make_sample(folder / "good");
    const fs::path path = folder / "store";
    std::mt19937 random(2);
    const auto records = [](const fs::path& store) {
        auto files = files_below(store / "functions");
        const auto more = files_below(store / "snapshots");
        files.insert(files.end(), more.begin(), more.end());
        files.push_back(store / "store.json");
        return files;
    };
    const std::array<std::string, 8> contents{
        "",
        "{}",
        "kvmserver-record 2 function 00\n{}",
        seal_record("function", "{}"),
        seal_record("function", "[1,2,3]"),
        seal_record("version", R"({"function":1,"name":"../../x","number":1,"snapshot":"zz","manifest":"{}",)"
                               R"("created":0,"state":"ready"})"),
        seal_record("function", R"({"id":-1,"name":"alpha","revision":1e99,"last_version":true,"created":0,)"
                                R"("changed":0,"live":[[1,4294967396]],"routes":[],"env":{},"secrets":{}})"),
        seal_record("snapshot", std::string(R"({"digest":")") + std::string(64, '0') +
                                    R"(","size":18446744073709551615,"created":0,"pieces":[[")" + std::string(64, '0') +
                                    R"(",9223372036854775807],[")" + std::string(64, '0') +
                                    R"(",9223372036854775807]]})")};
    const auto [first, step] = kvmserver::test::some_places();
    std::size_t place = 0;
    for (std::size_t file = 0; file < records(folder / "good").size(); ++file)
        for (std::size_t how = 0; how < contents.size() + 4; ++how) {
            if (++place % static_cast<std::size_t>(step) != static_cast<std::size_t>(first % step))
                continue;
            fs::remove_all(path);
            fs::copy(folder / "good", path, fs::copy_options::recursive);
            const fs::path victim = records(path)[file];
            INFO(victim << " " << how);
            std::string text = read_text(victim);
            if (how < contents.size()) {
                text = contents[how];
            } else if (how == contents.size()) {
                text.resize(text.size() / 2);
            } else {
                text[random() % text.size()] ^= 4;
            }
            fs::remove(victim);
            if (how == contents.size() + 3)
                fs::create_directory(victim);
            else
                write_text(victim, text);
            const std::string before = pictures(path); // the index is right
            VerifyReport report;
            if (how < contents.size() + 3) {
                CHECK_NOTHROW(report = verify(path));
                CHECK(report.clean());
                CHECK(pictures(path) == before);
                fs::remove(victim);
                write_text(victim, text);
            }
            fs::remove(path / "index.db"); // now the records are all that there is
            CHECK_NOTHROW(report = verify(path));
            INFO(lines_of(report));
            Store store(path);
            for (const FunctionSummary& function : Functions(store).list())
                CHECK_NOTHROW(picture(store, function.name));
            if (victim.filename() != "store.json" && victim.native().find("alpha") != std::string::npos)
                CHECK(picture(store, "beta").find("v1") != std::string::npos);
        }
}

TEST_CASE("an older store is migrated, a copy is kept; a newer one is refused") {
    const TempFolder folder;
    const fs::path path = folder / "store";
    make_sample(path);
    const std::string before = pictures(path);
    const std::size_t now = all_migrations().size();
    const auto and_then = [](const char* sql) {
        std::vector<const char*> all(all_migrations().begin(), all_migrations().end());
        all.push_back(sql);
        return all;
    };
    const auto newer = and_then("CREATE TABLE extra (id INTEGER PRIMARY KEY) STRICT; ALTER TABLE function ADD COLUMN "
                                "note TEXT NOT NULL DEFAULT ''");
    const auto failing = and_then("DELETE FROM route; DELETE FROM snapshot");
    const auto nonsense = and_then("DROP TABLE traffic; CREATE TABLE oops");
    StoreOptions options;
    for (const auto& migrations : {failing, nonsense}) {
        options.migrations = migrations;
        CHECK_THROWS_AS(Store(path, options), UserError);
        CHECK(pictures(path) == before);
    }
    options.migrations = newer;
    {
        const Store in_use(path);
        options.busy_ms = 50;
        CHECK_THROWS_WITH(Store(path, options), Contains("must be migrated first"));
    }
    {
        Store store(path, options);
        REQUIRE(store.notes().size() == 1);
        CHECK(store.notes()[0].line.find(fmt::format("migrated from schema {} to {}", now, now + 1)) !=
              std::string::npos);
        CHECK(picture(store, "alpha") + "\n" + picture(store, "beta") == before);
        deploy(store, "alpha", 5);
    }
    CHECK_THROWS_WITH(Store(path), Contains("made by a newer kvmserver"));
    CHECK_THROWS_WITH(verify(path), Contains("made by a newer kvmserver"));
    fs::remove(path / "index.db");
    fs::copy(path / fmt::format("index.db.v{}.bak", now), path / "index.db");
    CHECK(pictures(path) == before);
}

TEST_CASE("a store of schema 1 is migrated: what is in it is the operator's, and its etags are good") {
    const TempFolder folder;
    const fs::path path = folder / "store";
    make_sample(path);
    {
        Store store(path);
        Tokens(store).create("old", kScopeDeploy, "alpha");
        store.index()->execute("UPDATE function SET tag = '0'");
        for (const char* const name : {"alpha", "beta"}) // so that records are as those of then
            Functions(store).set_env(name, "A", "1");
    }
    sql(path, "DROP TABLE drained; DROP TABLE shared; DROP TABLE certificate; DROP TABLE change; DROP INDEX "
              "version_to_compress; ALTER "
              "TABLE function DROP "
              "COLUMN tag; ALTER TABLE function DROP COLUMN moved; ALTER TABLE "
              "version DROP COLUMN tenant; "
              "ALTER TABLE upload DROP COLUMN token; ALTER TABLE token DROP COLUMN routes; "
              "ALTER TABLE secret DROP COLUMN grants; ALTER TABLE token DROP COLUMN ceilings; "
              "ALTER TABLE version DROP COLUMN ceilings; ALTER TABLE version DROP COLUMN compress_later; "
              "ALTER TABLE version DROP COLUMN warms_until; ALTER TABLE chunk DROP COLUMN in_bucket; ALTER TABLE "
              "snapshot DROP COLUMN in_bucket_at; DROP TABLE event; "
              "PRAGMA "
              "user_version = 1");
    Store store(path);
    CHECK(store.notes().size() == 1);
    const FunctionDetails alpha = Functions(store).describe("alpha");
    CHECK(alpha.etag.starts_with("0-"));
    CHECK(alpha.live_versions.at(0).tenant.empty());
    CHECK(alpha.live_versions.at(0).ceilings.empty());
    CHECK(Tokens(store).list().at(0).routes.empty());
    CHECK(Tokens(store).list().at(0).ceilings.empty());
    CHECK_NOTHROW(Functions(store).set_env("alpha", "A", "2", alpha.etag));
    CHECK(lines_of(verify(path)).empty());
}

TEST_CASE("places that cannot be a store") {
    const TempFolder folder;
    write_text(folder / "file", "");
    CHECK_THROWS_AS(Store(folder / "file"), UserError);
    CHECK_THROWS_AS(Store("/proc/nothing/store"), UserError);
}

TEST_CASE("ceilings of tokens and of versions are kept, in the index and in records") {
    const TempFolder folder;
    const fs::path path = folder / "store";
    {
        Store store(path);
        Tokens(store).create("ci", kScopeDeploy, "ci-", {}, {}, R"({"max-machines":2})");
        deploy(store, "alpha", 1);
        DeployRequest request;
        request.function = "alpha";
        request.snapshot = Functions(store).version("alpha", 1).snapshot;
        request.ceilings = R"({"max-machines":1})";
        Functions(store).deploy(request);
    }
    const auto check = [&] {
        Store store(path);
        CHECK(Tokens(store).list().at(0).ceilings == R"({"max-machines":2})");
        CHECK(Functions(store).version("alpha", 1).ceilings == "");
        CHECK(Functions(store).version("alpha", 2).ceilings == R"({"max-machines":1})");
    };
    check();
    fs::remove(path / "index.db"); // made anew from the records
    CHECK(verify(path).clean());
    check();
}
