// Snapshots, chunks, uploads, gc.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "src/store/snapshots/chunk_files.hpp"
#include "src/store/snapshots/importer.hpp"
#include "src/store/snapshots/stored_snapshot.hpp"
#include "tests/catch.hpp"
#include "tests/unit/store/samples.hpp"
#include "tinykvm/base/read.hpp"

using namespace kvmserver;
using namespace kvmserver::store;
using namespace kvmserver::store::test;

namespace {

std::size_t chunk_count(const fs::path& store) { return files_below(store / "chunks").size(); }

} // namespace

TEST_CASE("digests are those of FIPS 180-4") {
    CHECK(sha256(std::string_view("abc")).hex() == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK_FALSE(Digest::from_hex(std::string(64, 'A')));
    CHECK_FALSE(Digest::from_hex(std::string(63, 'a')));
}

TEST_CASE("a snapshot is its pieces, and equal pieces are stored once") {
    const TempFolder folder;
    Store store(folder / "store");
    auto pieces = sample_pieces(1);
    pieces.push_back(pieces[0]); // twice in one snapshot
    const SnapshotHold hold = import(store, pieces);
    CHECK(hold.digest() == sha256(joined(pieces)));
    CHECK(exported(store, hold.digest()) == joined(pieces));
    CHECK(chunk_count(folder / "store") == 6);
    Importer second(store);
    for (const Bytes& piece : sample_pieces(2))
        second.put(piece);
    CHECK(second.new_bytes() == 1400 + 1700 + 2000);
    second.commit();
    CHECK(chunk_count(folder / "store") == 9);
    CHECK(fs::is_empty(folder / "store/tmp") == false); // the importer's, until it goes

    const StoredSnapshot snapshot(store, hold.digest());
    REQUIRE(snapshot.pieces().size() == 7);
    for (std::size_t i = 0; i < 7; ++i) {
        Bytes bytes(pieces[i].size());
        REQUIRE(tinykvm::read_at(snapshot.open_piece(i).get(), 0, bytes, "read piece") == bytes.size());
        CHECK(bytes == pieces[i]);
    }
    const Bytes whole = joined(pieces);
    for (const std::size_t offset :
         {std::size_t{0}, std::size_t{499}, std::size_t{500}, std::size_t{1299}, whole.size() - 1})
        for (const std::size_t length : {std::size_t{0}, std::size_t{1}, std::size_t{2000}, whole.size()}) {
            Bytes part(std::min(length, whole.size() - offset));
            snapshot.read(offset, part);
            CHECK(std::equal(part.begin(), part.end(), whole.begin() + static_cast<std::ptrdiff_t>(offset)));
        }
    Bytes one(1);
    CHECK_THROWS_AS(snapshot.read(whole.size(), one), BadValue);
    CHECK_THROWS_AS(StoredSnapshot(store, sha256("other")), NotFound);
    CHECK_FALSE(SnapshotHold::take(store, sha256("other")));
}

TEST_CASE("only the owner can read a store") {
    const TempFolder folder;
    {
        Store store(folder / "store");
        deploy(store, "hello", 1);
        for (const auto& entry : fs::recursive_directory_iterator(folder / "store"))
            CHECK((static_cast<unsigned>(entry.status().permissions()) & 0077) == 0);
    }
    CHECK((static_cast<unsigned>(fs::status(folder / "store").permissions()) & 0777) == 0700);
    CHECK(fs::is_empty(folder / "store/tmp"));
    CHECK(fs::is_empty(folder / "store/locks"));
}

TEST_CASE("an import that is refused or given up leaves nothing") {
    const TempFolder folder;
    Store store(folder / "store");
    {
        Importer importer(store);
        importer.put(bytes_of("some"));
        CHECK_THROWS_AS(importer.commit(sha256("other")), DigestMismatch);
    }
    {
        Importer importer(store);
        CHECK_THROWS_AS(importer.put({}), BadValue);
        CHECK_THROWS_AS(importer.commit(), BadValue);
    }
    CHECK(chunk_count(folder / "store") == 0);
    CHECK(fs::is_empty(folder / "store/tmp"));
}

TEST_CASE("pieces that the store has need not travel") {
    const TempFolder folder;
    Store store(folder / "store");
    import(store, sample_pieces(1));
    const auto pieces = sample_pieces(2);
    std::vector<ChunkRef> wanted;
    for (const Bytes& piece : pieces)
        wanted.push_back({sha256(piece), piece.size()});
    const auto lacking = missing(store, wanted);
    CHECK(lacking == std::vector<Digest>{wanted[3].digest, wanted[4].digest, wanted[5].digest});
    Importer importer(store);
    CHECK_THROWS_AS(importer.put_known(wanted[3].digest, wanted[3].length), MissingChunk);
    for (std::size_t i = 0; i < 3; ++i)
        importer.put_known(wanted[i].digest, wanted[i].length);
    for (std::size_t i = 3; i < 6; ++i)
        importer.put(pieces[i]);
    importer.commit(sha256(joined(pieces)));
    CHECK(exported(store, sha256(joined(pieces))) == joined(pieces));
}

TEST_CASE("a known piece is linked, read once, and can be read before it is in the store") {
    const TempFolder folder;
    Store store(folder / "store");
    const auto pieces = sample_pieces(1);
    import(store, pieces);
    const auto chunk = folder / "store" / chunk_path(sha256(pieces[1]));
    {
        Importer importer(store);
        for (const unsigned which : {1u, 0u, 1u}) // twice the same
            importer.put_known(sha256(pieces[which]), pieces[which].size());
        CHECK(fs::hard_link_count(chunk) == 2);
        REQUIRE(importer.piece_count() == 3);
        CHECK(importer.piece(2).digest == sha256(pieces[1]));
        fs::remove(chunk); // a gc
        Bytes read(pieces[1].size());
        CHECK(tinykvm::read_at(importer.open_piece(2).get(), 0, read, "read") == read.size());
        CHECK(read == pieces[1]);
        const Bytes all = joined({pieces[1], pieces[0], pieces[1]});
        CHECK_THROWS_AS(importer.finish(sha256("other")), DigestMismatch);
        CHECK(importer.finish() == sha256(all));
        importer.commit();
        CHECK(exported(store, sha256(all)) == all);
        CHECK(importer.new_bytes() == 0);
    }
    {
        Importer importer(store, std::set<Digest>{sha256(pieces[0])}); // what others have is not known here
        CHECK_THROWS_AS(importer.put_known(sha256(pieces[1]), pieces[1].size()), MissingChunk);
        importer.put_known(sha256(pieces[0]), pieces[0].size());
        CHECK_THROWS_AS(importer.put_known(sha256(pieces[0]), pieces[0].size() - 1), MissingChunk); // of another length
    }
    // One that is altered on the disk is needed again, and is mended by whoever brings it.
    fs::permissions(chunk, fs::perms::owner_all);
    write_text(chunk, std::string(pieces[1].size(), 'x'));
    Importer spoiled(store), importer(store);
    CHECK_THROWS_AS(spoiled.put_known(sha256(pieces[1]), pieces[1].size()), MissingChunk);
    spoiled.put(pieces[1]);
    for (int i = 0; i < 2; ++i) {
        try {
            spoiled.commit();
            FAIL("committed with the bytes of a damaged chunk in its digest");
        } catch (const BadValue& e) {
            CHECK(std::string(e.what()).find("damaged chunk") != std::string::npos);
        }
    }
    importer.put(pieces[1]);
    importer.commit();
    CHECK(exported(store, sha256(pieces[1])) == pieces[1]);
}

TEST_CASE("pieces of a file, of any length") {
    const TempFolder folder;
    Store store(folder / "store");
    std::string text;
    for (int i = 0; text.size() < 700'000; ++i)
        text += std::to_string(i);
    write_text(folder / "file", text);
    const tinykvm::UniqueFd file(::open((folder / "file").c_str(), O_RDONLY | O_CLOEXEC));
    {
        Importer importer(store);
        importer.put_part(file.get(), 0, 1, "it");
        importer.put_part(file.get(), 1, 600'000, "it");
        CHECK_THROWS_WITH(importer.put_part(file.get(), text.size() - 1, 2, "it"), "it: it changed while it was read");
        CHECK_THROWS_AS(importer.put_part(file.get(), 0, 0, "it"), BadValue);
        CHECK(importer.new_bytes() == 600'001);
    }
    Importer importer(store);
    importer.put_part(file.get(), 0, 600'000, "it");
    importer.put_part(file.get(), 600'000, text.size() - 600'000, "it");
    const SnapshotHold hold = importer.commit(sha256(bytes_of(text)));
    CHECK(exported(store, hold.digest()) == bytes_of(text));
    // Bytes that the disk has altered are not taken for the same.
    const std::string path = folder / "store" / chunk_path(sha256(bytes_of(text.substr(0, 600'000))));
    write_text(path, text.substr(0, 599'999) + "x");
    Importer mending(store);
    mending.put_part(file.get(), 0, 600'000, "it");
    mending.put_part(file.get(), 600'000, text.size() - 600'000, "it");
    mending.commit();
    CHECK(exported(store, hold.digest()) == bytes_of(text));
}

TEST_CASE("an altered chunk is said, and mended by the next import of its bytes") {
    const TempFolder folder;
    Store store(folder / "store");
    const auto pieces = sample_pieces(1);
    const SnapshotHold hold = import(store, pieces);
    const fs::path path = folder.path() / "store" / chunk_path(sha256(pieces[2]));
    const bool same_length = GENERATE(true, false);
    write_text(path, std::string(same_length ? pieces[2].size() : 7, 'x'));
    CHECK_THROWS_AS(exported(store, hold.digest()), UserError);
    CheckedChunks checked;
    try {
        StoredSnapshot(store, hold.digest()).check(checked);
        FAIL("the altered chunk was not found");
    } catch (const UserError& error) {
        CHECK(std::string(error.what()).find(path.string()) != std::string::npos);
    }
    import(store, pieces);
    CHECK(exported(store, hold.digest()) == joined(pieces));
}

TEST_CASE("gc keeps as many versions as the newest manifest says") {
    const TempFolder folder;
    Store store(folder / "store");
    Functions functions(store);
    const auto deploy_with = [&](const std::string& name, unsigned seed, const std::string& manifest) {
        DeployRequest request;
        const SnapshotHold hold = import(store, sample_pieces(seed));
        request.function = name;
        request.snapshot = hold.digest();
        request.manifest = manifest;
        functions.deploy(request);
    };
    for (unsigned seed = 1; seed <= 4; ++seed) {
        deploy_with("two", seed,
                    seed < 4 ? R"({"function":{"versions":{"keep":1}}})" : R"({"function":{"versions":{"keep":2}}})");
        deploy_with("all", seed, seed < 4 ? R"({"function":{"versions":{"keep":1}}})" : "{}");
        deploy_with("odd", seed, R"({"function":{"versions":{"keep":"1"}}})"); // of an older kvmserver, say
    }
    CHECK(gc(store).versions == 2);
    CHECK(functions.versions("two").size() == 2);
    CHECK(functions.versions("all").size() == 4);
    CHECK(functions.versions("odd").size() == 4);
    GcOptions options;
    options.keep_versions = 1; // given: for all
    CHECK(gc(store, options).versions == 1 + 3 + 3);
}

TEST_CASE("gc takes what nothing names and nobody holds") {
    const TempFolder folder;
    const fs::path path = folder / "store";
    Store store(path);
    Functions functions(store);
    for (unsigned seed = 1; seed <= 5; ++seed)
        deploy(store, "hello", seed);
    functions.set_traffic("hello", {{1, 50}, {5, 50}});
    CHECK(chunk_count(path) == 18);
    std::optional<SnapshotHold> hold = import(store, sample_pieces(6));
    GcOptions options;
    options.keep_versions = 2;
    options.dry_run = true;
    const std::uint64_t each = 1400 + 1700 + 2000;
    const GcResult would = gc(store, options);
    CHECK(would.bytes == 2 * each);
    CHECK(would.lines.size() == 4); // v2, v3 and their snapshots
    CHECK(chunk_count(path) == 21);
    options.dry_run = false;
    const GcResult did = gc(store, options);
    CHECK(did.bytes == would.bytes);
    CHECK(did.versions == 2);
    CHECK(did.snapshots == 2);
    CHECK(chunk_count(path) == 15);
    CHECK(functions.versions("hello").size() == 3); // 1 (live), 4, 5
    hold.reset();
    CHECK(gc(store).bytes == each);
    CHECK(lines_of(verify(path)).empty());

    const Digest digest = functions.version("hello", 5).snapshot;
    std::optional<StoredSnapshot> reader(std::in_place, store, digest);
    const tinykvm::UniqueFd piece = reader->open_piece(5);
    functions.remove("hello");
    CHECK(gc(store).snapshots == 2);
    CHECK(exported(store, digest) == joined(sample_pieces(5)));
    reader.reset();
    CHECK(gc(store).snapshots == 1);
    CHECK(chunk_count(path) == 0);
    Bytes bytes(2000); // a descriptor outlives the name
    CHECK(tinykvm::read_at(piece.get(), 0, bytes, "read piece") == 2000);
    CHECK(bytes == sample_pieces(5)[5]);
    CHECK(lines_of(verify(path)).empty());
}

TEST_CASE("a gc in the middle of an import takes nothing from it") {
    const TempFolder folder;
    Store store(folder / "store");
    import(store, sample_pieces(1)); // unnamed: gc takes it
    const auto pieces = sample_pieces(1);
    Importer importer(store);
    for (const Bytes& piece : pieces) {
        importer.put(piece);
        gc(store);
    }
    CHECK(chunk_count(folder / "store") == 0); // the import has its own links
    const SnapshotHold hold = importer.commit();
    gc(store);
    CHECK(exported(store, hold.digest()) == joined(pieces));
}

TEST_CASE("uploads") {
    const TempFolder folder;
    const Bytes content = bytes_of("0123456789");
    std::string id;
    {
        Store store(folder / "store");
        Uploads uploads(store);
        id = uploads.create(10, sha256(content)).id;
        CHECK(uploads.append(id, 0, std::span(content).first(4)) == 4);
        UploadWriter writer = uploads.append(id, 4);
        writer.write(std::span(content).subspan(4, 2));
        CHECK_THROWS_AS(uploads.append(id, 4), Conflict); // somebody is appending
        CHECK_THROWS_AS(uploads.drop(id), Conflict);
        CHECK_THROWS_AS(writer.write(content), BadValue);
    } // not synced
    Store store(folder / "store");
    Uploads uploads(store);
    CHECK(uploads.info(id).offset == 4);
    try {
        uploads.append(id, 6, std::span(content).subspan(6));
        FAIL("a wrong offset was good");
    } catch (const WrongOffset& e) {
        CHECK(e.expected() == 4);
    }
    CHECK_THROWS_AS(uploads.complete(id), WrongOffset);
    uploads.append(id, 4, std::span(content).subspan(4));
    CHECK(lines_of(verify(folder / "store")).empty());
    CHECK(sha256_of_file(uploads.complete(id).get(), "upload") == sha256(content));
    CHECK(uploads.list().size() == 1);
    uploads.drop(id);
    CHECK_THROWS_AS(uploads.info(id), NotFound);
    CHECK_THROWS_AS(uploads.append("../index.db", 0), NotFound);
    CHECK_THROWS_AS(uploads.create(0, sha256(content)), BadValue);

    id = uploads.create(10, sha256("other")).id;
    uploads.append(id, 0, content);
    CHECK_THROWS_AS(uploads.complete(id), DigestMismatch);
    CHECK_THROWS_AS(uploads.info(id), NotFound);
    CHECK(fs::is_empty(folder / "store/uploads"));

    id = uploads.create(10, sha256(content)).id; // no way out of the store
    write_text(folder / "outside", "outside");
    fs::remove(folder.path() / "store/uploads" / id);
    fs::create_symlink(folder / "outside", folder.path() / "store/uploads" / id);
    CHECK_THROWS_AS(uploads.append(id, 0, content), HostError);
    CHECK(read_text(folder / "outside") == "outside");
    CHECK(verify(folder / "store").clean());
    CHECK_THROWS_AS(uploads.info(id), NotFound);
}

TEST_CASE("an upload is free when its writer goes, even while a process is being started") {
    const TempFolder folder;
    Store store(folder / "store");
    Uploads uploads(store);
    const std::vector<std::byte> content = bytes_of("0123456789");
    const std::string id = uploads.create(content.size(), sha256(content)).id;
    std::optional<UploadWriter> writer(uploads.append(id, 0));
    const pid_t child = ::fork(); // before its exec(2) it has all that is open
    if (child == 0)
        for (;;)
            ::pause();
    REQUIRE(child > 0);
    CHECK_THROWS_AS(uploads.append(id, 0, content), Conflict);
    writer.reset();
    CHECK_NOTHROW(uploads.append(id, 0, content));
    CHECK_NOTHROW(uploads.complete(id));
    CHECK_NOTHROW(uploads.drop(id));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
}
