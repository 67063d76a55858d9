#include "tests/catch.hpp"
#include "tests/unit/store/samples.hpp"

#include <filesystem>
#include <string>

#include "src/cluster/seal.hpp"
#include "tinykvm/base/error.hpp"

using namespace kvmserver;
using kvmserver::cluster::Seal;

TEST_CASE("a sealed text is opened with the same key at the same place, and not otherwise") {
    const Seal seal("a secret of some length"), other("another one");
    for (const std::string& text : {std::string(), std::string("short"), std::string(300'000, 'x')}) {
        const std::string sealed = seal.seal(text, "functions/hello");
        CHECK(seal.open(sealed, "functions/hello") == text);
        CHECK(Seal("a secret of some length").open(sealed, "functions/hello") == text);
        CHECK(!other.open(sealed, "functions/hello"));
        CHECK(!seal.open(sealed, "functions/hallo"));
        CHECK(seal.seal(text, "functions/hello") != sealed); // nobody sees whether it is the same again
    }
    CHECK(seal.seal(std::string(300'000, 'x'), "a").size() < 1000);
}

TEST_CASE("any altered byte of a sealed text is noticed") {
    const Seal seal("a secret of some length");
    const std::string sealed = seal.seal("the text", "key");
    for (std::size_t i = 0; i < sealed.size(); ++i) {
        std::string altered = sealed;
        altered[i] = static_cast<char>(altered[i] ^ 1);
        CHECK(!seal.open(altered, "key"));
        CHECK(!seal.open(sealed.substr(0, i), "key"));
    }
    CHECK(!seal.open(sealed + "x", "key"));
}

TEST_CASE("the file of a key") {
    const store::test::TempFolder folder;
    const std::string file = folder / "key";
    const auto made = [&](const std::string& text, unsigned mode) {
        store::test::write_text(file, text);
        std::filesystem::permissions(file, std::filesystem::perms(mode));
        return Seal::of_file("--cluster-key", file);
    };
    const std::string secret(64, 'k');
    const std::string sealed = made(secret, 0600).seal("the text", "key");
    CHECK(made(secret + "\n", 0600).open(sealed, "key") == "the text"); // as an editor leaves it
    CHECK(!made(secret + "k", 0600).open(sealed, "key"));
    CHECK_THROWS_WITH(made(secret, 0604), Catch::Contains("everyone may read it"));
    CHECK_THROWS_WITH(made("short\n", 0600), Catch::Contains("at least 32 bytes"));
    CHECK_THROWS_WITH(Seal::of_file("--cluster-key", folder / "none"), Catch::Contains("No such file"));
    CHECK_THROWS_AS(Seal::of_file("--cluster-key", folder.path()), tinykvm::UserError);
}
