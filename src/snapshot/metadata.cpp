#include "src/snapshot/metadata.hpp"

#include <zstd.h>

#include "src/snapshot/bytes.hpp"
#include "src/snapshot/json_codec.hpp"
#include "src/snapshot/metadata_checks.hpp"

namespace kvmserver {

// The JSON document: the values, and for each handle the number of content bytes that follow the JSON.
struct Document {
    MadeWith made_with;
    tinykvm::MachineState machine;
    std::vector<std::uint64_t> content_bytes;
};

template <>
struct Fields<Document> {
    static constexpr auto all() {
        return std::tuple{Field{"made_with", &Document::made_with}, Field{"machine", &Document::machine},
                          Field{"content_bytes", &Document::content_bytes}};
    }
};

namespace {

constexpr std::size_t kMaxDepth = 8;

template <class T, class Check>
void check_each(const std::vector<T>& values, const char* name, const Check& check) {
    const JsonPath list{&kMachine, name, 0};
    for (std::size_t i = 0; i < values.size(); ++i)
        check(values[i], JsonPath{&list, nullptr, i});
}

void check_machine(const tinykvm::MachineState& state) {
    check_numbers(state);
    const auto run = [&](const tinykvm::FrameRun& each, const JsonPath& place) {
        check_run(each, place, state.frames);
    };
    check_each(state.free_frames, "free_frames", run);
    check_each(state.working_set, "working_set", run);
    check_each(state.regions, "regions", check_region);
    check_large_page_count(state.large_pages.size());
    check_each(state.large_pages, "large_pages", [&](const tinykvm::LargePageState& each, const JsonPath& place) {
        check_hot_run(each.hot, place, state.frames);
    });
    check_each(state.listeners, "listeners", check_listener);
}

// Checked because code that walks the parsed result recurses (the parser does not).
bool is_shallow(std::string_view text) {
    std::size_t depth = 0;
    bool quoted = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (c == '"')
            quoted = !quoted;
        else if (quoted)
            i += c == '\\' ? 1 : 0;
        else if (c == '[' || c == '{') {
            if (++depth > kMaxDepth)
                return false;
        } else if ((c == ']' || c == '}') && depth > 0)
            --depth;
    }
    return true;
}

Json parse(std::string_view text) {
    if (!is_shallow(text))
        throw FormatError("metadata is inconsistent: it is nested too deep");
    try {
        return Json::parse(text);
    } catch (const Json::exception&) {
        throw FormatError("metadata is inconsistent: it is not JSON");
    }
}

} // namespace

MadeWith this_version() { return {KVMSERVER_VERSION, ZSTD_versionString()}; }

std::vector<std::byte> encode_metadata(const Metadata& metadata) {
    check_machine(metadata.machine);
    std::vector<std::uint64_t> content_bytes;
    std::uint64_t sum = 0;
    for (const tinykvm::HandleState& handle : metadata.machine.handles) {
        content_bytes.push_back(handle.content.size());
        sum += handle.content.size();
    }
    const std::string json = Json{{"made_with", to_json_value(metadata.made_with)},
                                  {"machine", to_json_value(metadata.machine)},
                                  {"content_bytes", to_json_value(content_bytes)}}
                                 .dump();
    if (json.size() > format::kMaxJsonBytes || sum > format::kMaxContentBytes)
        throw FormatError("the machine's state is too long for a snapshot");
    ByteWriter out;
    out.put(static_cast<std::uint32_t>(json.size()));
    out.put(std::as_bytes(std::span(json)));
    for (const tinykvm::HandleState& handle : metadata.machine.handles)
        out.put(std::as_bytes(std::span(handle.content)));
    return std::move(out).take();
}

Metadata decode_metadata(std::span<const std::byte> bytes) {
    ByteReader in(bytes, "metadata");
    const auto json_bytes = in.get<std::uint32_t>();
    if (json_bytes > format::kMaxJsonBytes)
        throw FormatError("metadata is inconsistent: it is too long");
    const auto text = in.take(json_bytes);
    Document document;
    from_json_value(parse({reinterpret_cast<const char*>(text.data()), text.size()}), kDocument, document);
    check_machine(document.machine);
    auto& handles = document.machine.handles;
    if (document.content_bytes.size() != handles.size())
        JsonPath{&kDocument, "content_bytes", 0}.bad("has not one number for each handle");
    for (std::size_t i = 0; i < handles.size(); ++i) {
        const auto content = in.take(document.content_bytes[i]);
        const auto* first = reinterpret_cast<const std::uint8_t*>(content.data());
        handles[i].content.assign(first, first + content.size());
    }
    if (in.left() != 0)
        throw FormatError("metadata is inconsistent: it is too long");
    return {std::move(document.made_with), std::move(document.machine)};
}

} // namespace kvmserver
