// Users, passwords and roles of a real etcd.
#include <string>

#include "src/etcd/base64.hpp"
#include "src/etcd/client.hpp"
#include "tests/catch.hpp"
#include "tests/unit/etcd/etcd_process.hpp"

using namespace kvmserver::etcd;
using namespace kvmserver::etcd::test;

namespace {

const Credentials kRoot{"root", "r"}, kUser{"app", "secret"};

void enable_users(const Etcd& etcd) {
    post(etcd, "/v3/auth/user/add", R"({"name":"root","password":"r"})");
    post(etcd, "/v3/auth/role/add", R"({"name":"root"})");
    post(etcd, "/v3/auth/user/grant", R"({"user":"root","role":"root"})");
    post(etcd, "/v3/auth/user/add", R"({"name":"app","password":"secret"})");
    post(etcd, "/v3/auth/role/add", R"({"name":"app"})");
    post(etcd, "/v3/auth/user/grant", R"({"user":"app","role":"app"})");
    post(etcd, "/v3/auth/role/grant",
         R"({"name":"app","perm":{"permType":"READWRITE","key":")" + to_base64("test/") + R"(","range_end":")" +
             to_base64("test0") + R"("}})");
    post(etcd, "/v3/auth/enable", "{}");
}

Done put_as(Client& client, const std::string& key) {
    const Change change{.key = key, .value = "v"};
    return client.change({}, {&change, 1});
}

bool is_not_permitted(Client& client) {
    try {
        put_as(client, "x");
    } catch (const Refused& refused) {
        CHECK(std::string(refused.what()).find("secret") == std::string::npos);
        return refused.code() == tinykvm::ExitCode::not_permitted;
    }
    return false;
}

} // namespace

TEST_CASE("etcd with users") {
    if (!have_etcd())
        return;
    Etcd etcd({"--bcrypt-cost", "4"});
    Client client(etcd.address(), kUser);
    const Done before = put_as(client, "a"); // credentials do no harm where none are wanted
    enable_users(etcd);

    SECTION("who logs in may use his keys, and nobody else") {
        CHECK(put_as(client, "b").applied);
        CHECK(client.get("a"));
        CHECK(client.range("", "", 10, Values::with).entries.size() == 2);
        const std::int64_t lease = client.grant_lease(100);
        CHECK(client.keep_lease(lease));
        client.revoke_lease(lease);
        Client nobody(etcd.address(), {}), wrong(etcd.address(), {"app", "other"});
        Client elsewhere(etcd.address("others/"), kUser);
        CHECK(is_not_permitted(nobody));
        CHECK(is_not_permitted(wrong));
        CHECK(is_not_permitted(elsewhere));
    }
    SECTION("a token that is no longer valid is replaced") {
        CHECK(put_as(client, "b").applied);
        etcd.stop(); // its tokens are in its memory
        etcd.start();
        CHECK(put_as(client, "c").applied);
        etcd.stop();
        etcd.start();
        CHECK(client.get("c"));
    }
    SECTION("a watch logs in") {
        Follower follower(etcd.address(), before.revision, kUser);
        CHECK(follower.has_events(1));
        put_as(client, "b");
        CHECK(follower.has_events(2));
        Follower nobody(etcd.address(), before.revision), elsewhere(etcd.address("others/"), before.revision, kUser);
        Follower wrong(etcd.address(), before.revision, {"app", "other"});
        for (Follower* const each : {&nobody, &elsewhere, &wrong}) {
            each->end();
            CHECK(each->refused());
        }
    }
    SECTION("a watch whose client has a token that is no longer valid logs in again") {
        put_as(client, "b"); // logs in
        etcd.stop();
        etcd.start();
        Watch watch(client);
        std::size_t count = 0;
        const auto end = watch.follow(before.revision, [&](const Batch& batch) {
            count += batch.events.size();
            if (count >= 2)
                watch.stop();
        });
        CHECK(end == Watch::End::stopped);
        CHECK(count == 2);
    }
}
