// How much room uploads get, and what becomes of one that cannot be examined yet.
#include <fcntl.h>
#include <sys/stat.h>

#include "src/store/functions/tokens.hpp"
#include "src/store/snapshots/uploads.hpp"
#include "tests/catch.hpp"
#include "tests/unit/admin/world.hpp"

using namespace kvmserver;
using namespace kvmserver::admin::test;

namespace {

constexpr std::uint64_t kMiB = 1 << 20;

struct Uploaders {
    explicit Uploaders(admin::UploadLimits limits, std::shared_ptr<daemon::Examinations> examinations = {})
        : world({.examinations = std::move(examinations), .uploads = limits}) {
        store::Tokens tokens(world.store);
        one = tokens.create("one", store::kScopeDeploy);
        two = tokens.create("two", store::kScopeDeploy);
    }
    // Of something that nobody else uploads.
    Reply begin(std::uint64_t mib, const std::string& token) {
        const std::string digest = sha256(std::to_string(++count_)).hex();
        const nlohmann::json body{{"size", mib * kMiB}, {"sha256", digest}};
        return world.ask("POST", "/v1/uploads", body.dump(), {}, token);
    }

    World world;
    std::string one, two;

private:
    int count_ = 0;
};

void refused(const Reply& reply, unsigned status, const std::string& code, const std::string& detail) {
    CHECK(reply.status == status);
    CHECK(reply.json()["code"] == code);
    CHECK(reply.json()["detail"] == detail);
}

} // namespace

TEST_CASE("a token's uploads, and those of all") {
    Uploaders with({.of_token = 10 * kMiB, .of_all = 15 * kMiB, .keep_free = 0});
    refused(with.begin(11, with.one), 413, "too-large", "an upload of 11 MiB: a token may have 10 MiB under way");
    const Reply first = with.begin(6, with.one);
    CHECK(first.status == 201);
    refused(with.begin(5, with.one), 413, "upload-quota",
            "uploads of this token would be 11 MiB, and may be 10 MiB: end others first, or DELETE them");
    CHECK(with.begin(4, with.one).status == 201);
    refused(with.begin(6, with.two), 507, "uploads-full",
            "uploads under way would be 16 MiB, and may be 15 MiB: try again when others have ended");
    CHECK(with.begin(5, with.two).status == 201);
    const std::string id = first.json()["id"];
    CHECK(with.world.ask("DELETE", "/v1/uploads/" + id, "", {}, with.one).status == 200);
    CHECK(with.begin(6, with.one).status == 201);
}

TEST_CASE("the operator has no limit of a token") {
    Uploaders with({.of_token = kMiB, .of_all = 15 * kMiB, .keep_free = 0});
    CHECK(with.begin(12, "").status == 201);
    refused(with.begin(4, ""), 507, "uploads-full",
            "uploads under way would be 16 MiB, and may be 15 MiB: try again when others have ended");
}

TEST_CASE("0 is no limit") {
    Uploaders with({.of_token = 0, .of_all = 0, .keep_free = 0});
    CHECK(with.begin(1, with.one).status == 201);
    CHECK(with.begin(1, with.one).status == 201);
}

TEST_CASE("what stays free on the disk") {
    Uploaders with({.of_token = 0, .of_all = 0, .keep_free = std::uint64_t{1} << 60});
    const Reply reply = with.begin(1, with.one);
    CHECK(reply.status == 507);
    CHECK(reply.json()["code"] == "disk-full");
    CHECK(reply.json()["detail"].get<std::string>().find("1 MiB more need to be stored, ") == 0);
}

TEST_CASE("an upload that nobody sends to goes after a day") {
    Uploaders with({.of_token = 10 * kMiB, .of_all = 0, .keep_free = 0});
    const std::string old = with.begin(6, with.one).json()["id"];
    const auto touch = [&](std::int64_t seconds_ago) {
        const timespec then{::time(nullptr) - seconds_ago, 0}, times[2] = {then, then};
        const auto path = (with.world.folder / "store") / store::upload_path(old);
        REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
    };
    touch(86'000);
    CHECK(with.begin(6, with.one).status == 413);
    touch(86'800);
    CHECK(with.begin(6, with.one).status == 201);
    CHECK(with.world.ask("HEAD", "/v1/uploads/" + old, "", {}, with.one).status == 404);
}

TEST_CASE("an upload waits where it is until it can be examined") {
    bool busy = true;
    auto examinations = std::make_shared<daemon::Examinations>(
        daemon::Examinations::Operations{[&](int, std::uint64_t bytes) {
                                             if (busy)
                                                 throw daemon::ExaminersBusy(2, 16);
                                             SnapshotFacts facts;
                                             facts.pieces = {4, bytes - 4};
                                             return facts;
                                         },
                                         {},
                                         {}});
    Uploaders with({.keep_free = 0}, examinations);
    const std::string text = "0123456789", digest = sha256(text).hex();
    const std::string body = nlohmann::json{{"size", 10}, {"sha256", digest}}.dump();
    const std::string id = with.world.ask("POST", "/v1/uploads", body, {}, with.one).json()["id"];
    const Reply later = with.world.ask("PATCH", "/v1/uploads/" + id, text, {{"Upload-Offset", "0"}}, with.one);
    refused(later, 503, "busy", "2 snapshots are being examined and 16 wait for it: try again");
    CHECK(later.header("Retry-After") == "1");
    busy = false;
    const Reply done = with.world.ask("PATCH", "/v1/uploads/" + id, "", {{"Upload-Offset", "10"}}, with.one);
    CHECK(done.status == 200);
    CHECK(done.json()["snapshot"] == "sha256:" + digest);
    Digest known = *Digest::from_hex(digest);
    CHECK(examinations->knows(known));
}

TEST_CASE("a delta that would unfold to more than a token may have") {
    Uploaders with({.of_token = kMiB, .keep_free = 0});
    store::test::import(with.world.store, store::test::sample_pieces(1));
    // Lists one piece, which is not sent, many times over.
    std::string delta = "KVMDELTA";
    const auto add = [&](std::uint64_t value, int bytes) {
        for (int i = 0; i < bytes; ++i)
            delta += static_cast<char>(value >> (8 * i));
    };
    const auto piece = store::test::sample_pieces(1).front();
    const Digest digest = sha256(std::span<const std::byte>(piece));
    const std::size_t count = 2 * kMiB / piece.size();
    add(1, 4);
    add(count, 4);
    delta.append(32, 'x');
    for (std::size_t i = 0; i < count; ++i) {
        delta.append(reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size());
        add(piece.size(), 8);
    }
    REQUIRE(delta.size() < kMiB);
    const std::string body = nlohmann::json{{"size", delta.size()}, {"sha256", sha256(delta).hex()}}.dump();
    const std::string id = with.world.ask("POST", "/v1/uploads", body, {}, with.one).json()["id"];
    const Reply reply = with.world.ask("PATCH", "/v1/uploads/" + id, delta, {{"Upload-Offset", "0"}}, with.one);
    CHECK(reply.status == 413);
    CHECK(reply.json()["code"] == "too-large");
}

TEST_CASE("JSON of very many values is refused before it is in memory") {
    Uploaders with({});
    std::string body = "{\"size\":[";
    for (int i = 0; i < 100'000; ++i)
        body += "[],";
    const Reply reply = with.world.ask("POST", "/v1/uploads", body + "[]]}", {}, with.one);
    refused(reply, 400, "bad-value", "the body has more than 20000 values");
}

TEST_CASE("a list of pieces") {
    Uploaders with({});
    const std::string some = sha256("a").hex();
    const auto ask = [&](const std::string& body) {
        return with.world.ask("POST", "/v1/snapshots/missing", body, {}, with.one);
    };
    const std::string piece = "[\"" + some + "\",7]", digest = "\"snapshot\":\"sha256:" + some + "\"";
    CHECK(ask(" { \"pieces\" : [ " + piece + " , " + piece + "], " + digest + " } ").json()["missing"] ==
          nlohmann::json{0, 1});
    CHECK(ask("{" + digest + "}").json()["missing"].empty());
    const auto says = [&](const std::string& body, const std::string& detail) {
        INFO(body.substr(0, 200));
        refused(ask(body), 400, "bad-value", detail);
    };
    says("", "the body must be a JSON object, of \"snapshot\" and \"pieces\"");
    says("{" + digest, "the body must be a JSON object, of \"snapshot\" and \"pieces\"");
    says("{" + digest + "} 1", "the body must be a JSON object, of \"snapshot\" and \"pieces\"");
    says("{\"pieces\":[]}", "\"snapshot\" is missing");
    says("{\"snapshot\":1}", "\"snapshot\" must be a string");
    says("{" + digest + ",\"more\":1}", "\"more\" is not known here");
    const std::vector<std::string> others{
        "7", "[7]", "[[7,\"" + some + "\"]]", "[[\"" + some + "\"]]", "[[\"" + some + "\",-1]]", "{}"};
    for (const std::string& wrong : others)
        says("{" + digest + ",\"pieces\":" + wrong + "}", "\"pieces\" must be a list of [SHA-256, bytes]");
    std::string many = "{" + digest + ",\"pieces\":[" + piece;
    for (std::size_t i = 0; i < kMaxPieces; ++i)
        many += "," + piece;
    says(many + "]}", "more than 65536 pieces are listed");
    const Reply large = ask("{" + std::string(9 << 20, ' ') + "}");
    CHECK(large.status == 413);
    CHECK(large.json()["detail"] == "the body is larger than 8388608 bytes");
}
