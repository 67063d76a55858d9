// What a daemon learns of a file that strangers made, and what that costs.
#include "src/snapshot/facts.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "src/snapshot/bytes.hpp"
#include "src/snapshot/json_text.hpp"
#include "src/snapshot/reader.hpp"
#include "tests/catch.hpp"
#include "tests/unit/snapshot/bendable.hpp"
#include "tests/unit/snapshot/matchers.hpp"
#include "tinykvm/abi/guest_kernel.hpp"

using namespace kvmserver;
using test::Bytes;
using test::Contains;
using test::Sample;

namespace {

// One byte at a time: every boundary between blocks is tried.
JsonText of(std::string_view& text) {
    return JsonText([&text]() -> std::string_view {
        const std::string_view one = text.substr(0, 1);
        text.remove_prefix(one.size());
        return one;
    });
}

Json whole(std::string_view text) {
    JsonText json = of(text);
    Json value = json.value();
    json.expect_end();
    return value;
}

SnapshotFacts sample() {
    SnapshotFacts facts;
    facts.guest_abi = 6;
    facts.frames = 10;
    facts.threads = 1;
    facts.pieces = {128, 5, 7};
    facts.permissions.read = {"/srv"};
    facts.cwd = "/srv";
    facts.listeners = {{1, AF_INET, {2, 0, 0, 80, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}, 0}};
    facts.late_env = {{"GREETING", 0, 4096}};
    return facts;
}

// A section as it is stored, and how long it says to be.
struct Stored {
    Bytes bytes;
    std::uint64_t raw = 0;
};

Stored stored(const Bytes& raw) { return {compress_section(raw), raw.size()}; }
Stored operator+(Stored a, const Stored& b) {
    a.bytes.insert(a.bytes.end(), b.bytes.begin(), b.bytes.end());
    a.raw += b.raw;
    return a;
}

// A zstd frame (RFC 8878, 3.1.1) of so many blocks of 128 KiB, each of which is one byte, repeated.
Stored repeated(char byte, std::size_t blocks, unsigned window_log = 22) {
    constexpr std::uint32_t kBlock = 128 << 10;
    ByteWriter out;
    out.put(std::uint32_t{0xfd2fb528});
    out.put(std::uint8_t{0});
    out.put(static_cast<std::uint8_t>((window_log - 10) << 3));
    for (std::size_t i = 0; i < blocks; ++i) {
        const std::uint32_t header = kBlock << 3 | 1 << 1 | (i + 1 == blocks ? 1 : 0);
        for (unsigned shift = 0; shift < 24; shift += 8)
            out.put(static_cast<std::uint8_t>(header >> shift));
        out.put(static_cast<std::uint8_t>(byte));
    }
    return {std::move(out).take(), std::uint64_t{kBlock} * blocks};
}

Bytes json_length(std::uint64_t bytes) {
    ByteWriter out;
    out.put(static_cast<std::uint32_t>(bytes));
    return std::move(out).take();
}

Bytes file_of(const Sample& sample, const Stored& metadata, const Stored& index) {
    test::Parts parts = sample.parts();
    format::Header header;
    header.prefix.guest_abi = 7;
    header.chunks = parts.chunk_count;
    header.chunk_bytes = parts.chunks.size();
    header.metadata = {metadata.bytes.size(), metadata.raw, format::checksum_of(metadata.bytes)};
    header.index = {index.bytes.size(), index.raw, format::checksum_of(index.bytes)};
    header.prefix.file_bytes = header.index_at() + index.bytes.size();
    const auto head = format::encode(header);
    Bytes file(head.begin(), head.end());
    for (const Bytes* part : {&std::as_const(parts.chunks), &metadata.bytes, &index.bytes})
        file.insert(file.end(), part->begin(), part->end());
    return file;
}

Bytes with_metadata(const Stored& metadata) {
    const Sample sample;
    return file_of(sample, metadata, stored(sample.parts().index));
}
Bytes with_index(const Stored& index) {
    const Sample sample;
    return file_of(sample, stored(sample.parts().metadata), index);
}
Bytes good() { return test::assemble(Sample().parts()); }

struct Looked {
    SnapshotFacts facts;
    std::string error; // "": none
};

Looked look(const Bytes& file, Depth depth = Depth::whole) {
    const test::TempFolder folder;
    test::write_file(folder / "a", file);
    try {
        return {examine_snapshot(*open_file_source(folder / "a"), depth), ""};
    } catch (const FormatError& error) {
        return {{}, error.what()};
    }
}

#ifdef KVMSERVER_SANITIZED
constexpr rlim_t kRoom = 768 << 20; // it keeps what is freed
#else
constexpr rlim_t kRoom = 32 << 20;
#endif

rlim_t address_space() {
    std::uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
}

// The same in a process that may have kRoom more memory than this one.
std::string error_in_little_memory(const Bytes& file) {
    const test::TempFolder folder;
    test::write_file(folder / "a", file);
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        const rlim_t most = address_space() + kRoom;
        const rlimit limit{most, most};
        std::string said;
        try {
            if (::setrlimit(RLIMIT_AS, &limit) != 0)
                throw std::runtime_error("setrlimit");
            examine_snapshot(*open_file_source(folder / "a"));
        } catch (const std::exception& error) {
            said = error.what();
        }
        ::_exit(::write(ends[1], said.data(), said.size()) == static_cast<ssize_t>(said.size()) ? 0 : 1);
    }
    ::close(ends[1]);
    int status = 0;
    CHECK(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    std::string said(4096, '\0');
    const ssize_t count = ::read(ends[0], said.data(), said.size());
    ::close(ends[0]);
    said.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    return said;
}

} // namespace

TEST_CASE("a value is taken whole, wherever its bytes are cut") {
    CHECK(whole(" {\"a\": [1, \"x]}\\\"\", {}]} ") == Json::parse("{\"a\": [1, \"x]}\\\"\", {}]}"));
    CHECK(whole("12") == 12);
    for (const char* bad : {"", "1 2", "\"a", "[1", "]", "tru", "\"a\"\"b\"", "{\"a\" 1}"})
        CHECK_THROWS_AS(whole(bad), FormatError);
}

TEST_CASE("text that would cost memory is refused") {
    CHECK_THROWS_AS(whole(std::string(100'000, '[')), FormatError);
    CHECK_THROWS_AS(whole('"' + std::string(JsonText::kMaxText, 'a') + '"'), FormatError);
    CHECK_THROWS_AS(whole(std::string(JsonText::kMaxText + 1, '1')), FormatError);
    std::string wide = "[";
    for (std::size_t i = 0; i < 2 * JsonText::kMaxValues; ++i)
        wide += "0,";
    CHECK_THROWS_AS(whole(wide + "0]"), FormatError);
}

TEST_CASE("a name that comes twice is refused") {
    std::string_view text = "{\"a\":1,\"a\":2}";
    JsonText json = of(text);
    CHECK_THROWS_AS(json.object([&](const std::string&) { json.value(); }), FormatError);
}

TEST_CASE("what is found out about a good file") {
    Sample sample;
    sample.state.late_env = {{"TOKEN", 0x7feff0002000, 4096}, {"COLOUR", 0x7feff0001000, 4096}};
    const Bytes good = test::assemble(sample.parts());
    const auto [facts, error] = look(good);
    CHECK(error == "");
    const test::TempFolder folder;
    test::write_file(folder / "a", good);
    const auto reader = SnapshotReader::open(folder / "a");
    CHECK(facts.guest_abi == reader.state().guest_abi);
    CHECK(facts.frames == reader.state().frames);
    CHECK(facts.threads == reader.state().threads);
    CHECK(facts.permissions == reader.state().permissions);
    CHECK(facts.limits == reader.state().limits);
    CHECK(facts.cwd == reader.state().program.cwd);
    CHECK(facts.listeners == reader.state().listeners);
    CHECK_FALSE(facts.listeners.empty());
    CHECK(facts.late_env == std::vector<tinykvm::LateVariable>{{"TOKEN", 0, 4096}, {"COLOUR", 0, 4096}});
    std::uint64_t sum = 0;
    for (const std::uint64_t bytes : facts.pieces)
        sum += bytes;
    CHECK(sum == reader.file_bytes());
    CHECK(facts.pieces.size() == 3 + reader.chunks().size());
    CHECK(facts.pieces[2] == reader.chunks()[1].stored);
    CHECK(facts_from_text(to_text(facts), Depth::whole, sum) == facts);
}

TEST_CASE("its metadata alone") {
    auto whole = look(good()).facts;
    whole.pieces.clear();
    const auto facts = look(good(), Depth::metadata).facts;
    CHECK(facts == whole);
    CHECK(facts_from_text(to_text(facts), Depth::metadata, 0) == facts);
}

TEST_CASE("files that are cut short anywhere, or have one altered byte") {
    const Bytes file = good();
    for (std::size_t i = 0; i < file.size(); ++i) {
        CHECK(look({file.begin(), file.begin() + static_cast<std::ptrdiff_t>(i)}).error != "");
        Bytes altered = file;
        altered[i] ^= std::byte{0x10};
        CHECK(look(altered).error != "");
    }
}

TEST_CASE("sections that inflate to a thousand times their size cost little memory") {
    const Sample sample;
    const Bytes metadata = sample.parts().metadata, index = sample.parts().index;
    CHECK(error_in_little_memory(good()) == "");
    constexpr std::size_t kGiB = 8192; // blocks
    const Stored zeros = repeated('\0', kGiB);
    CHECK(zeros.bytes.size() < 33'000);
    // No length of the JSON, then all of it zeros.
    CHECK_THAT(error_in_little_memory(with_metadata(zeros)), Contains("is inconsistent"));
    // Behind a state that says nothing of it.
    CHECK_THAT(error_in_little_memory(with_metadata(stored(metadata) + repeated('\0', kGiB - 1))),
               Contains("do not make up its length"));
    constexpr std::size_t kJson = 128; // blocks: 16 MiB
    const auto json = [&](std::string_view begin, const Stored& rest) {
        const Bytes text = test::to_bytes(begin);
        return with_metadata(stored(json_length(text.size() + rest.raw)) + stored(text) + rest);
    };
    CHECK_THAT(error_in_little_memory(json("", repeated('[', kJson - 1))), Contains("is not JSON"));
    CHECK_THAT(error_in_little_memory(json("{\"made_with\":", repeated('[', kJson - 1))), Contains("too deep"));
    CHECK_THAT(error_in_little_memory(json("{\"made_with\":\"", repeated('a', kJson - 1))), Contains("too long"));
    CHECK_THAT(error_in_little_memory(json("{\"", repeated('a', kJson - 1))), Contains("too long"));
    CHECK_THAT(error_in_little_memory(json("{\"machine\":{\"regions\":[", repeated('1', kJson - 1))),
               Contains("too long"));
    CHECK_THAT(error_in_little_memory(json("{", repeated(' ', kJson - 1))), Contains("is not JSON"));
    // A chunk with 22 million runs; entries of chunks that are not there.
    Bytes runs(index.begin(), index.begin() + 8);
    const std::uint32_t many = 22'000'000;
    runs.insert(runs.end(), reinterpret_cast<const std::byte*>(&many), reinterpret_cast<const std::byte*>(&many + 1));
    runs.resize(28);
    CHECK_THAT(error_in_little_memory(with_index(stored(runs) + repeated('\1', 2047))),
               Contains("index is inconsistent"));
    CHECK_THAT(error_in_little_memory(with_index(stored(index) + repeated('\0', 2000))), Contains("too long"));
    // A window that the decompressor would have to keep.
    CHECK_THAT(error_in_little_memory(with_metadata(repeated('\0', kGiB, 30))), Contains("does not decompress"));
}

TEST_CASE("what a file may not cost its host") {
    Sample sample;
    sample.state.permissions.read.assign(30'000, "/some/path");
    CHECK_THAT(look(test::assemble(sample.parts())).error, Contains("too many permissions"));
    auto parts = Sample().parts();
    for (const std::uint32_t count : {2000u, 65'536u, ~0u}) {
        parts.chunk_count = count;
        CHECK_THAT(look(test::assemble(parts)).error, Contains("chunks are too many for its length"));
    }
}

TEST_CASE("facts as text, and only for a file of their length") {
    const SnapshotFacts facts = sample();
    const std::string text = to_text(facts);
    CHECK(facts_from_text(text, Depth::whole, 140) == facts);
    for (const std::uint64_t length : {0, 139, 141})
        CHECK_THROWS_AS(facts_from_text(text, Depth::whole, length), FormatError);
    CHECK_THROWS_AS(facts_from_text("", Depth::whole, 140), FormatError);
    CHECK_THROWS_AS(facts_from_text("{}", Depth::whole, 140), FormatError);
    CHECK_THROWS_AS(facts_from_text(text, Depth::metadata, 140), FormatError);
}

TEST_CASE("its listener that a connection reaches") {
    SnapshotFacts facts = sample();
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(80);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const auto reached = [&] { return listener_at(facts, reinterpret_cast<const sockaddr*>(&to), sizeof to); };
    CHECK(reached() == 1u);
    to.sin_port = htons(81);
    CHECK_FALSE(reached());
    to.sin_port = htons(80);
    facts.listeners.front().flags = tinykvm::abi::kBindMessages; // no streams
    CHECK_FALSE(reached());
}

TEST_CASE("facts that a process which was taken over would send") {
    const std::string text = to_text(sample());
    const auto refused = [&](const std::string& from, const std::string& to) {
        std::string bent = text;
        const auto at = bent.find(from);
        REQUIRE(at != bent.npos);
        bent.replace(at, from.size(), to);
        INFO(bent.substr(0, 1000));
        CHECK_THROWS_AS(facts_from_text(bent, Depth::whole, 140), FormatError);
    };
    refused("\"frames\":10", "\"frames\":0");
    refused("\"frames\":10", "\"frames\":4294967295");
    refused("\"frames\":10", "\"frames\":-1");
    refused("[128,5,7]", "[128,5,7,0]");
    refused("[128,5,7]", "[18446744073709551615,141]");
    refused("[128,5,7]", "7");
    refused("\"cwd\":\"/srv\"", "\"cwd\":\"/srv\",\"more\":1");
    refused("\"cwd\":\"/srv\"", "\"cwd\":\"/srv\",\"cwd\":\"/\"");
    refused("\"cwd\":\"/srv\"", "\"cwd\":" + std::string(100'000, '['));
    refused("\"memory\":", "\"memory\":999999");
    refused("\"frames\":10,", "");
    refused("\"address\":\"", "\"address\":\"" + std::string(1000, '0'));
    auto many = sample();
    many.listeners.resize(65, many.listeners.front());
    CHECK_THROWS_AS(facts_from_text(to_text(many), Depth::whole, 140), FormatError);
    CHECK_THROWS_AS(facts_from_text(text + std::string(kMaxFactsText, ' '), Depth::whole, 140), FormatError);
    CHECK_THROWS_AS(facts_from_text(text + "1", Depth::whole, 140), FormatError);
}
