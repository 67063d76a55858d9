#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "src/snapshot/bytes.hpp"
#include "src/snapshot/json_codec.hpp"
#include "src/snapshot/metadata.hpp"
#include "tests/catch.hpp"
#include "tests/unit/snapshot/files.hpp"
#include "tests/unit/snapshot/matchers.hpp"
#include "tests/unit/snapshot/sample_state.hpp"

using namespace kvmserver;
using test::Contains;

namespace {

// How many members an aggregate has: as many as it can be initialised from.
struct Anything {
    template <class T>
    operator T() const;
};
template <class T, class... Args>
constexpr std::size_t member_count() {
    if constexpr (requires { T{Args{}..., Anything{}}; })
        return member_count<T, Args..., Anything>();
    else
        return sizeof...(Args);
}
template <class T>
constexpr std::size_t saved_count() {
    return std::tuple_size_v<decltype(Fields<T>::all())>;
}

Json document_of(std::span<const std::byte> metadata) {
    ByteReader in(metadata, "test");
    const auto text = in.take(in.get<std::uint32_t>());
    return Json::parse(reinterpret_cast<const char*>(text.data()),
                       reinterpret_cast<const char*>(text.data()) + text.size());
}

test::Bytes metadata_of(const std::string& json, std::string_view content) {
    ByteWriter out;
    out.put(static_cast<std::uint32_t>(json.size()));
    out.put(test::to_bytes(json));
    out.put(test::to_bytes(content));
    return std::move(out).take();
}

std::string error_of(std::span<const std::byte> metadata) {
    try {
        decode_metadata(metadata);
    } catch (const FormatError& error) {
        return error.what();
    }
    return "";
}

constexpr std::string_view kContent("\x00\x01\x02\xff\xfe", 5); // of the sample's memfd
std::string error_of_document(const Json& document) { return error_of(metadata_of(document.dump(), kContent)); }

} // namespace

TEST_CASE("every field of the state is saved") {
    using namespace tinykvm;
    CHECK(saved_count<RegionState>() == member_count<RegionState>());
    CHECK(saved_count<FrameRun>() == member_count<FrameRun>());
    CHECK(saved_count<ListenerState>() == member_count<ListenerState>());
    CHECK(saved_count<CpuidLeaf>() == member_count<CpuidLeaf>());
    CHECK(saved_count<CpuState>() == member_count<CpuState>());
    CHECK(saved_count<FileIdentity>() == member_count<FileIdentity>());
    CHECK(saved_count<HandleState>() == member_count<HandleState>() - 1); // content goes elsewhere
    CHECK(saved_count<MemoryFileAttributes>() == member_count<MemoryFileAttributes>());
    CHECK(saved_count<Volume>() == member_count<Volume>());
    CHECK(saved_count<NetRule>() == member_count<NetRule>());
    CHECK(saved_count<Permissions>() ==
          member_count<Permissions>() - 3); // always_own_folders, hidden and shared_network are the runner's
    CHECK(saved_count<Limits>() == member_count<Limits>());
    CHECK(saved_count<ProgramState>() == member_count<ProgramState>());
    CHECK(saved_count<MachineState>() == member_count<MachineState>());
}

TEST_CASE("metadata round trip") {
    const Metadata before{{"1.2.3", "9.9"}, test::sample_state(100)};
    const auto bytes = encode_metadata(before);
    const Metadata after = decode_metadata(bytes);
    CHECK(after.made_with == before.made_with);
    const auto &a = after.machine, &b = before.machine;
    CHECK(a.guest_kernel_digest == b.guest_kernel_digest);
    CHECK(a.free_frames == b.free_frames);
    CHECK(a.working_set == b.working_set);
    CHECK(a.regions == b.regions);
    CHECK(a.cpu == b.cpu);
    CHECK(a.listeners == b.listeners);
    CHECK(a.handles == b.handles);
    CHECK(a.program == b.program);
    CHECK(a.permissions == b.permissions);
    CHECK(a.limits == b.limits);
    CHECK(std::tie(a.guest_abi, a.entry_mode, a.page_table_root, a.frames, a.brk_begin, a.brk_end, a.random_at,
                   a.threads) == std::tie(b.guest_abi, b.entry_mode, b.page_table_root, b.frames, b.brk_begin,
                                          b.brk_end, b.random_at, b.threads));
    CHECK(a.fork == b.fork);
    CHECK(std::tie(a.mono_ns, a.boot_ns, a.real_ns, a.clock_continues) ==
          std::tie(b.mono_ns, b.boot_ns, b.real_ns, b.clock_continues));
    CHECK(encode_metadata(after) == bytes);
}

TEST_CASE("environment variables that may change are there when there are any") {
    Metadata metadata{this_version(), test::sample_state(100)};
    CHECK(document_of(encode_metadata(metadata))["machine"].count("late_env") == 0);
    auto strange = document_of(encode_metadata(metadata));
    strange["machine"]["another"] = Json::array();
    CHECK(error_of_document(strange).find("another") != std::string::npos);
    metadata.machine.late_env = {{"TOKEN", 0x7feff0002000, 4096}, {"COLOUR", 0x7feff0001000, 4096}};
    const auto bytes = encode_metadata(metadata);
    CHECK(decode_metadata(bytes).machine.late_env == metadata.machine.late_env);
    auto document = document_of(bytes);
    document["machine"]["late_env"][1]["at"] = "somewhere";
    CHECK(error_of_document(document).find("machine.late_env[1].at") != std::string::npos);
}

TEST_CASE("entropy regions are there when there are any") {
    Metadata metadata{this_version(), test::sample_state(100)};
    CHECK(document_of(encode_metadata(metadata))["machine"].count("entropy") == 0);
    metadata.machine.entropy = {{0x7feff0002000, 16, tinykvm::EntropyFill::random, {}, "V8"},
                                {0x7feff0003000, 2, tinykvm::EntropyFill::constant, {1, 2}, "index"}};
    const auto bytes = encode_metadata(metadata);
    CHECK(decode_metadata(bytes).machine.entropy == metadata.machine.entropy);
    auto document = document_of(bytes);
    document["machine"]["entropy"][1]["constant"] = 7;
    CHECK(error_of_document(document).find("machine.entropy[1].constant") != std::string::npos);
}

TEST_CASE("metadata is parsed strictly") {
    const auto good = encode_metadata({this_version(), test::sample_state(100)});
    const Json document = document_of(good);
    REQUIRE(error_of_document(document) == "");

    SECTION("every field that is missing, or of another type, is named") {
        const std::function<void(Json, const std::vector<std::string>&)> visit =
            [&](Json object, const std::vector<std::string>& path) {
                for (const auto& [name, value] : object.items()) {
                    auto here = path;
                    here.push_back(name);
                    Json::json_pointer at;
                    std::string shown = "document";
                    for (const std::string& part : here) {
                        at /= part;
                        shown += "." + part;
                    }
                    Json changed = document;
                    changed[at.parent_pointer()].erase(name);
                    const bool optional = std::set<std::string>{"boot_ns", "clock_continues", "fork", "request_arena",
                                                                "request_cpu_seconds"}
                                              .contains(name); // older files have it not
                    CHECK(error_of_document(changed) ==
                          (optional ? "" : "metadata is inconsistent: " + shown + " is missing"));
                    for (const Json& other : {Json(nullptr), Json(Json::array({Json::array()})), Json("not hex"),
                                              Json(1.5), Json(Json::object()), Json(true), Json(-1e300)}) {
                        changed = document;
                        if (other.type() == value.type() || (other.is_number() && value.is_number_float()) ||
                            (other.is_string() && value.is_string()))
                            continue;
                        changed[at] = other;
                        CHECK_THAT(error_of_document(changed), Contains(shown));
                    }
                    if (value.is_object())
                        visit(value, here);
                }
            };
        visit(document, {});
    }
    SECTION("unknown fields") {
        Json changed = document;
        changed["machine"]["limits"]["a\nb"] = 1;
        CHECK(error_of_document(changed) ==
              "metadata is inconsistent: document.machine.limits has an unknown field \"a\\x0ab\"");
    }
    SECTION("elements of lists") {
        Json changed = document;
        changed["machine"]["regions"][1][2] = "rw";
        CHECK_THAT(error_of_document(changed),
                   Contains("document.machine.regions[1].prot is not a whole number of 32 bits"));
        changed["machine"]["regions"][1].erase(2);
        CHECK_THAT(error_of_document(changed), Contains("document.machine.regions[1] is not a list of 5 values"));
    }
    SECTION("numbers that do not fit") {
        for (const auto& [at, value] : {std::pair{"/machine/threads", Json(1ull << 32)},
                                        {"/machine/threads", Json(-1)},
                                        {"/machine/mono_ns", Json(-1)},
                                        {"/machine/permissions/connect/0/port", Json(65536)},
                                        {"/machine/handles/0/kind", Json(256)},
                                        {"/machine/handles/0/number", Json(2147483648)}}) {
            Json changed = document;
            changed[Json::json_pointer(at)] = value;
            CHECK_THAT(error_of_document(changed), Contains("is not a whole number of"));
        }
    }
    SECTION("limits that no command line gives") {
        for (const auto& [name, value] : {std::pair{"boot_seconds", Json(1e300)},
                                          {"request_seconds", Json(366.0 * 86400 + 1)},
                                          {"request_total_seconds", Json(-1.0)},
                                          {"memory", Json((1ull << 47) + 1)},
                                          {"address_space", Json(~0ull)},
                                          {"request_memory", Json(1ull << 63)},
                                          {"keep_memory", Json(~0ull)},
                                          {"open_files", Json(~0u)}}) {
            Json changed = document;
            changed["machine"]["limits"][name] = value;
            CHECK_THAT(error_of_document(changed), Contains("document.machine.limits has"));
        }
    }
    SECTION("hexadecimal") {
        Json changed = document;
        changed["machine"]["guest_kernel_digest"] = "00";
        CHECK_THAT(error_of_document(changed), Contains("has not 32 bytes"));
        changed = document;
        changed["machine"]["program"]["args"][4] = {{"hex", "0g"}};
        CHECK_THAT(error_of_document(changed), Contains("args[4] is not hexadecimal"));
    }
    SECTION("values that no machine has") {
        for (const auto& [at, value] : {std::pair{"/machine/frames", Json(0)},
                                        {"/machine/frames", Json(format::kMaxFrames + 1)},
                                        {"/machine/page_table_root", Json(100 * 4096)},
                                        {"/machine/free_frames/0/1", Json(0)},
                                        {"/machine/free_frames/0/1", Json(99)},
                                        {"/machine/free_frames/0/0", Json(0xffffffff)},
                                        {"/machine/working_set/1/1", Json(101)},
                                        {"/machine/regions/0/0", Json(0x400001)},
                                        {"/machine/regions/0/1", Json(0x400000)},
                                        {"/machine/regions/0/1", Json(1ull << 48)},
                                        {"/machine/regions/0/2", Json(8)},
                                        {"/machine/listeners/0/address", Json(std::string(258, '0'))},
                                        {"/machine/limits/boot_seconds", Json(-0.5)}}) {
            CAPTURE(at);
            Json changed = document;
            changed[Json::json_pointer(at)] = value;
            CHECK_THAT(error_of_document(changed), Contains("metadata is inconsistent: document.machine"));
        }
    }
    SECTION("contents") {
        const std::string json = document.dump();
        CHECK_THAT(error_of(metadata_of(json, "1234")), Contains("too early"));
        CHECK_THAT(error_of(metadata_of(json, "123456")), Contains("too long"));
        Json changed = document;
        changed["content_bytes"][2] = ~0ull;
        CHECK_THAT(error_of_document(changed), Contains("too early"));
        changed["content_bytes"] = {5};
        CHECK_THAT(error_of_document(changed), Contains("one number for each handle"));
    }
}

TEST_CASE("metadata that is no JSON") {
    CHECK_THAT(error_of(test::Bytes{}), Contains("too early"));
    CHECK_THAT(error_of(test::to_bytes("\xff\xff\xff\xff")), Contains("too long"));
    for (const char* text : {"", "{", "{}x", "[1", "\"\xff\"", "nul"})
        CHECK_THAT(error_of(metadata_of(text, "")), Contains("not JSON"));
    CHECK_THAT(error_of(metadata_of("[]", "")), Contains("document is not an object"));
    CHECK_THAT(error_of(metadata_of(std::string(1 << 20, '['), "")), Contains("nested too deep"));
    std::string deep;
    for (int i = 0; i < 100'000; ++i)
        deep += "{\"a\":";
    CHECK_THAT(error_of(metadata_of(deep, "")), Contains("nested too deep"));
}

TEST_CASE("states that cannot be saved are refused when they are written") {
    auto state = test::sample_state(100);
    state.limits.boot_seconds = std::numeric_limits<double>::quiet_NaN();
    CHECK_THROWS_AS(encode_metadata({this_version(), state}), FormatError);
    state = test::sample_state(100);
    state.limits.request_seconds = std::numeric_limits<double>::infinity();
    CHECK_THROWS_AS(encode_metadata({this_version(), state}), FormatError);
    state = test::sample_state(100);
    state.program.args.push_back(std::string(format::kMaxJsonBytes, 'x'));
    CHECK_THROWS_AS(encode_metadata({this_version(), state}), FormatError);
}
