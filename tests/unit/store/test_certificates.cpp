// Certificates: what is kept of them, and what else remembers them.
#include "src/store/functions/certificates.hpp"

#include <fmt/format.h>

#include <set>

#include "src/store/errors.hpp"
#include "tests/catch.hpp"
#include "tests/unit/store/samples.hpp"

using namespace kvmserver::store;
using namespace kvmserver::store::test;
using Catch::Matchers::Contains;

namespace {

std::string names(Store& store) {
    std::string all;
    for (const Certificate& certificate : Certificates(store).list())
        all += fmt::format("{}={}/{} ", certificate.name, certificate.chain, certificate.key);
    return all;
}

} // namespace

TEST_CASE("a certificate takes the place of one of its name, and every change is seen elsewhere") {
    const TempFolder folder;
    Store store(folder / "store"), other(folder / "store");
    Certificates certificates(store), elsewhere(other);
    std::set<std::int64_t> revisions{elsewhere.revision()};
    const auto is_new = [&] { return revisions.insert(elsewhere.revision()).second; };
    certificates.put("a.example", "chain", "key");
    CHECK(is_new());
    certificates.put("*.example", "chain2", "key2");
    CHECK(is_new());
    certificates.put("a.example", "chain3", "key3");
    CHECK(is_new());
    CHECK(names(other) == "*.example=chain2/key2 a.example=chain3/key3 ");
    certificates.remove("a.example");
    CHECK(is_new());
    CHECK_THROWS_AS(certificates.remove("a.example"), NotFound);
    certificates.put("a.example", "chain3", "key3");
    CHECK(is_new());
    certificates.remove("*.example");
    CHECK(is_new());
    CHECK(names(other) == "a.example=chain3/key3 ");
}

TEST_CASE("certificates outlast the index") {
    const TempFolder folder;
    {
        Store store(folder / "store");
        Certificates(store).put("b.example", "chain", "key");
        Certificates(store).put("a.example", "chain2", "key2");
    }
    std::filesystem::remove(folder / "store/index.db");
    Store store(folder / "store");
    CHECK(names(store) == "b.example=chain/key a.example=chain2/key2 ");
}

TEST_CASE("certificates that the store does not keep") {
    const TempFolder folder;
    Store store(folder / "store");
    Certificates certificates(store);
    for (const char* name : {"", "A.example", "a b", "a/b"})
        CHECK_THROWS_AS(certificates.put(name, "chain", "key"), BadValue);
    CHECK_THROWS_WITH(certificates.put("a", std::string(kMaxCertificateBytes, 'x'), "key"),
                      Contains("more than 65536"));
    store.index()->execute(fmt::format("INSERT INTO certificate (name, chain, private_key, changed) "
                                       "VALUES ('large', printf('%.*c', {}, 'x'), 'key', 0)",
                                       kMaxCertificatesBytes - 10));
    CHECK_THROWS_WITH(certificates.put("a", "chain", "a key"), Contains("more than 16 MiB"));
    CHECK_NOTHROW(certificates.put("large", "chain", "key")); // in its place
    CHECK_NOTHROW(certificates.put("a", "chain", "a key"));
}
