#include "src/snapshot/metadata.hpp"

#include <zstd.h>

#include <cmath>

#include "src/snapshot/bytes.hpp"
#include "src/snapshot/json_codec.hpp"
#include "tinykvm/base/guest_addr.hpp"
#include "tinykvm/memory/large_pages.hpp"

namespace kvmserver {

// The document: the values, and how many bytes of content of each handle follow the JSON.
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
constexpr std::uint64_t kAddressEnd = 1ull << 47;
constexpr double kMostSeconds = 366.0 * 86400; // as the command line's, and nanoseconds of it are a number of 64 bits
constexpr std::uint32_t kMostFiles = 1 << 20;
constexpr std::size_t kMaxAddressBytes = 128; // sizeof(sockaddr_storage)
constexpr std::uint32_t kAllProtections = 7;
constexpr Place kRoot{nullptr, "document", 0};

void check_regions(const std::vector<tinykvm::RegionState>& regions, const Place& machine) {
    const Place list{&machine, "regions", 0};
    for (std::size_t i = 0; i < regions.size(); ++i) {
        const tinykvm::RegionState& region = regions[i];
        const bool aligned = tinykvm::page_down(region.begin | region.end) == (region.begin | region.end);
        if (!aligned || region.begin >= region.end || region.end > kAddressEnd ||
            region.prot > kAllProtections)
            Place{&list, nullptr, i}.bad("is not a range of user pages");
    }
}

void check_runs(const std::vector<tinykvm::FrameRun>& runs, const Place& list, std::uint32_t frames) {
    for (std::size_t i = 0; i < runs.size(); ++i)
        if (runs[i].count == 0 || runs[i].first >= frames || runs[i].count > frames - runs[i].first)
            Place{&list, nullptr, i}.bad("is outside of guest memory");
}

void check_machine(const tinykvm::MachineState& state) {
    const Place machine{&kRoot, "machine", 0};
    if (state.frames == 0 || state.frames > format::kMaxFrames)
        Place{&machine, "frames", 0}.bad("is out of range");
    if (state.page_table_root / tinykvm::kPageSize >= state.frames)
        Place{&machine, "page_table_root", 0}.bad("is outside of guest memory");
    check_runs(state.free_frames, Place{&machine, "free_frames", 0}, state.frames);
    check_runs(state.working_set, Place{&machine, "working_set", 0}, state.frames);
    check_regions(state.regions, machine);
    const Place large{&machine, "large_pages", 0};
    if (state.large_pages.size() > tinykvm::LargePages::kMost)
        large.bad("has too many");
    for (std::size_t i = 0; i < state.large_pages.size(); ++i)
        if (const tinykvm::FrameRun& hot = state.large_pages[i].hot; hot.first > state.frames || hot.count > state.frames - hot.first)
            Place{&large, nullptr, i}.bad("is outside of guest memory");
    const Place listeners{&machine, "listeners", 0};
    for (std::size_t i = 0; i < state.listeners.size(); ++i)
        if (state.listeners[i].address.size() > kMaxAddressBytes)
            Place{&listeners, nullptr, i}.bad("has too long an address");
    const Place limits{&machine, "limits", 0};
    for (const double seconds : {state.limits.boot_seconds, state.limits.request_seconds, state.limits.request_total_seconds})
        if (!std::isfinite(seconds) || seconds < 0 || seconds > kMostSeconds)
            limits.bad("has an impossible time");
    for (const std::uint64_t bytes : {state.limits.memory, state.limits.address_space, state.limits.request_memory, state.limits.keep_memory})
        if (bytes > kAddressEnd)
            limits.bad("has more memory than there are addresses");
    if (state.limits.open_files > kMostFiles)
        limits.bad("has too many open files");
}

// The parser itself does not recurse, but code that walks its result does.
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
    from_json_value(parse({reinterpret_cast<const char*>(text.data()), text.size()}), kRoot, document);
    check_machine(document.machine);
    auto& handles = document.machine.handles;
    if (document.content_bytes.size() != handles.size())
        Place{&kRoot, "content_bytes", 0}.bad("has not one number for each handle");
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
