// Snapshots that are sent to an API: what travels, and what happens when something goes wrong on the way.
#include "src/remote/upload.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "src/remote/client.hpp"
#include "src/snapshot/writer.hpp"
#include "tests/catch.hpp"
#include "tests/unit/remote/far_api.hpp"
#include "tests/unit/snapshot/files.hpp"
#include "tests/unit/snapshot/sample_state.hpp"
#include "tests/unit/store/samples.hpp"

using namespace kvmserver;
using remote::Client;
using remote::Uploaded;
using remote::test::Asked;
using remote::test::FarApi;
using remote::test::has;
using remote::test::message_of;
using remote::test::Turn;
using store::test::Bytes;
using tinykvm::ExitCode;
using tinykvm::UserError;

namespace {

constexpr std::uint32_t kFrames = 900;

class Sample {
public:
    Sample() : file(folder / "a.snap"), memory(kvmserver::test::make_memory(kFrames)) { write(); }
    void write() const { write_snapshot(file, kvmserver::test::sample_state(kFrames), memory, {}); }
    Bytes bytes() const { return kvmserver::test::read_file(file); }

    store::test::TempFolder folder;
    std::filesystem::path file;
    Bytes memory;
};

Uploaded send(const FarApi& far, const std::filesystem::path& file) {
    Client client({.url = far.server.url(), .socket = {}, .token = "kvs_secret", .ca_file = {}});
    return remote::upload(client, file, [](std::uint64_t, std::uint64_t) {});
}

Bytes stored(FarApi& far, const Uploaded& upload) {
    const auto digest = Digest::from_hex(upload.snapshot.substr(std::string_view("sha256:").size()));
    return digest ? store::test::exported(far.world.store, *digest) : Bytes();
}

std::vector<Asked> all_of(const FarApi& far, const std::string& method) {
    std::vector<Asked> some = far.server.asked();
    std::erase_if(some, [&](const Asked& asked) { return asked.method != method; });
    return some;
}

std::uint64_t patched_bytes(const FarApi& far) {
    std::uint64_t bytes = 0;
    for (const Asked& patch : all_of(far, "PATCH"))
        bytes += patch.body.size();
    return bytes;
}

bool is_patch(const Turn& turn) { return turn.asked().method == "PATCH"; }

} // namespace

TEST_CASE("a snapshot arrives as it was, and says how much of it travelled and was new") {
    const Sample sample;
    FarApi far;
    Client client({.url = far.server.url(), .socket = {}, .token = "", .ca_file = {}});
    std::vector<std::uint64_t> done;
    std::uint64_t all = 0;
    const Uploaded upload = remote::upload(client, sample.file, [&](std::uint64_t now, std::uint64_t of) {
        done.push_back(now);
        all = of;
    });
    CHECK(stored(far, upload) == sample.bytes());
    CHECK(upload.bytes == sample.bytes().size());
    CHECK(upload.new_bytes == upload.bytes);
    CHECK(upload.sent_bytes == patched_bytes(far));
    CHECK(all == patched_bytes(far));
    CHECK(std::ranges::is_sorted(done));
    CHECK(done.back() == all);
}

TEST_CASE("what the store has does not travel again") {
    Sample sample;
    FarApi far;
    send(far, sample.file);
    const std::uint64_t before = patched_bytes(far);
    CHECK(send(far, sample.file).sent_bytes == 0);
    CHECK(patched_bytes(far) == before);

    std::fill(sample.memory.end() - 8192, sample.memory.end(), std::byte{7});
    sample.write();
    const Uploaded changed = send(far, sample.file);
    CHECK(stored(far, changed) == sample.bytes());
    CHECK(changed.new_bytes < changed.bytes);
    CHECK(changed.sent_bytes < changed.bytes);
    CHECK(patched_bytes(far) - before == changed.sent_bytes);
}

TEST_CASE("a snapshot that the store has takes one request, which names nothing but its digest") {
    const Sample sample;
    FarApi far;
    const Uploaded first = send(far, sample.file);
    const std::size_t before = far.server.asked().size();
    const Uploaded again = send(far, sample.file);
    CHECK(again.snapshot == first.snapshot);
    CHECK(again.bytes == sample.bytes().size());
    CHECK(again.new_bytes == 0);
    const auto asked = far.server.asked();
    REQUIRE(asked.size() == before + 1);
    CHECK(asked.back().body.size() < 2 * again.snapshot.size());
}

TEST_CASE("an upload whose connection breaks goes on from what had arrived") {
    const Sample sample;
    bool broke = false;
    FarApi far([&broke](FarApi& api, Turn& turn) {
        if (!is_patch(turn) || std::exchange(broke, true))
            return false;
        turn.take_body(10'000);
        api.say(turn);
        turn.hang_up();
        return true;
    });
    const Uploaded upload = send(far, sample.file);
    CHECK(stored(far, upload) == sample.bytes());
    const auto patches = all_of(far, "PATCH");
    REQUIRE(patches.size() == 2);
    CHECK(patches[1].header("upload-offset") == "10000");
    CHECK(patches[0].target == patches[1].target);
    CHECK(patches[0].body.size() + patches[1].body.size() == std::stoull(patches[0].header("content-length")));
}

TEST_CASE("a server that stands elsewhere than the client thought is asked where") {
    const Sample sample;
    bool moved = false;
    FarApi far([&moved](FarApi& api, Turn& turn) {
        if (!is_patch(turn) || std::exchange(moved, true))
            return false;
        turn.take_body();
        // The beginning had come before, by a connection that had been given up.
        const admin::test::Reply first =
            api.world.ask("PATCH", turn.asked().target, turn.asked().body.substr(0, 5000), {{"Upload-Offset", "0"}});
        const admin::test::Reply wrong = api.say(turn);
        if (first.status != 204 || wrong.json().at("code") != "wrong-offset")
            throw std::logic_error("the API has changed: " + wrong.body);
        turn.reply(wrong.status, wrong.body);
        return true;
    });
    const Uploaded upload = send(far, sample.file);
    CHECK(stored(far, upload) == sample.bytes());
    CHECK(all_of(far, "HEAD").size() == 1);
    CHECK(all_of(far, "PATCH").at(1).header("upload-offset") == "5000");
}

TEST_CASE("an upload of which only the last reply was lost is not sent again") {
    const Sample sample;
    FarApi far([](FarApi& api, Turn& turn) {
        if (!is_patch(turn))
            return false;
        turn.take_body();
        api.say(turn);
        turn.hang_up();
        return true;
    });
    const Uploaded upload = send(far, sample.file);
    CHECK(stored(far, upload) == sample.bytes());
    CHECK(all_of(far, "PATCH").size() == 1);
}

TEST_CASE("pieces that the store turns out to lack are sent after all") {
    const Sample sample;
    int asked = 0; // first whether it has the snapshot, then which pieces it lacks
    FarApi far([&asked](FarApi&, Turn& turn) {
        if (turn.asked().target != "/v1/snapshots/missing" || ++asked != 2)
            return false;
        turn.reply(200, R"({"present":false,"missing":[]})");
        return true;
    });
    CHECK(stored(far, send(far, sample.file)) == sample.bytes());
}

TEST_CASE("a store whose pieces keep vanishing is sent all of it once, then named as what is wrong") {
    const Sample sample;
    FarApi far([](FarApi&, Turn& turn) {
        turn.take_body();
        if (is_patch(turn)) {
            turn.reply(422, R"({"code":"missing-chunk","detail":"d"})");
        } else if (turn.asked().target == "/v1/snapshots/missing") {
            turn.reply(200, R"({"present":false,"missing":[0]})");
        } else {
            turn.reply(201, R"({"complete":false,"id":"u1","offset":0})");
        }
        return true;
    });
    CHECK(has(message_of([&] { send(far, sample.file); }), "kvmserver verify"));
    const auto patches = all_of(far, "PATCH");
    REQUIRE(patches.size() == 3);
    CHECK(patches[0].body.size() < sample.bytes().size());
    CHECK(patches[2].body.size() > sample.bytes().size());
}

TEST_CASE("a server that is busy, and an upload that another connection still holds, are waited for") {
    const Sample sample;
    int patches = 0;
    const std::string answer = GENERATE(R"({"code":"busy","detail":"d"})", R"({"code":"conflict","detail":"d"})");
    FarApi far([&](FarApi&, Turn& turn) {
        if (!is_patch(turn) || ++patches > 1)
            return false;
        turn.reply(answer.find("busy") != answer.npos ? 503 : 409, answer);
        return true;
    });
    CHECK(stored(far, send(far, sample.file)) == sample.bytes());
    CHECK(patches == 2);
}

TEST_CASE("a refusal that no second try mends is told at once") {
    const Sample sample;
    FarApi far([](FarApi&, Turn& turn) {
        if (!is_patch(turn))
            return false;
        turn.reply(507, R"({"code":"disk-full","detail":"the disk is full"})");
        return true;
    });
    CHECK(message_of([&] { send(far, sample.file); }) == "the disk is full");
    CHECK(all_of(far, "PATCH").size() == 1);
}

TEST_CASE("nothing is sent of a file that is no sound snapshot") {
    const Sample sample;
    FarApi far;
    const bool has_the_rest = GENERATE(false, true); // then only the damaged piece would travel
    if (has_the_rest)
        send(far, sample.file);
    const std::uint64_t before = patched_bytes(far);
    Bytes bytes = sample.bytes();
    bytes[bytes.size() / 2] ^= std::byte{1};
    kvmserver::test::write_file(sample.file, bytes);
    try {
        send(far, sample.file);
        FAIL("it was sent");
    } catch (const UserError& error) {
        CHECK(error.code() == ExitCode::bad_snapshot);
    }
    CHECK(patched_bytes(far) == before);
    CHECK(all_of(far, "PATCH").size() == (has_the_rest ? 1 : 0));
}

TEST_CASE("a reply that is not the API's ends an upload with words, not with a fault of ours") {
    const Sample sample;
    const std::string where = GENERATE("missing", "index", "uploads", "patch", "code");
    FarApi far([&where](FarApi&, Turn& turn) {
        const std::string& target = turn.asked().target;
        const bool patch = is_patch(turn);
        if (where == "missing" && target == "/v1/snapshots/missing")
            turn.reply(200, R"({"somebody":"else's API"})");
        else if (where == "index" && target == "/v1/snapshots/missing")
            turn.reply(200, R"({"present":false,"missing":[99999]})");
        else if (where == "uploads" && target == "/v1/uploads")
            turn.reply(201, R"({"id":7})");
        else if (where == "patch" && patch)
            turn.reply(200, "<html>welcome</html>");
        else if (where == "code" && patch)
            turn.reply(400, R"({"code":7,"detail":"d"})");
        else
            return false;
        return true;
    });
    CAPTURE(where);
    CHECK(has(message_of([&] { send(far, sample.file); }), where == "code" ? "d" : "does not answer as the API"));
}
