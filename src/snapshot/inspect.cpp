// Prints the facts collected by inspect_json.cpp as lines.
#include "src/snapshot/inspect.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "src/common/time_text.hpp"

namespace kvmserver {

namespace {

using nlohmann::json;

std::string size_text(std::uint64_t bytes) {
    constexpr std::array<const char*, 4> kUnits{"B", "KiB", "MiB", "GiB"}; // as `snapshot` and `deploy` say it
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit)
        value /= 1024;
    return fmt::format("{:.{}f} {}", value, unit > 0 && value < 10 ? 1 : 0, kUnits[unit]);
}
std::string size_text(const json& bytes) { return size_text(bytes.get<std::uint64_t>()); }

std::string words(const json& list) {
    std::string text;
    for (const json& word : list) {
        text += text.empty() ? "" : " ";
        text += word.get<std::string>();
    }
    return text.empty() ? "-" : text;
}

// Quoted as for a shell, so that arguments with blanks can be told apart.
std::string quoted_words(const json& list) {
    std::string text;
    for (const json& item : list) {
        const auto word = item.get<std::string>();
        const bool plain = !word.empty() && word.find_first_of(" \"'\\$`") == std::string::npos;
        text += text.empty() ? "" : " ";
        text += plain ? word : fmt::format("\"{}\"", word);
    }
    return text.empty() ? "-" : text;
}

std::string permissions_text(const json& permissions) {
    if (permissions["all"].get<bool>())
        return "everything";
    std::string text;
    for (const char* name : {"read", "write", "env", "connect", "listen"})
        if (!permissions[name].empty())
            text += fmt::format("{}{} {}", text.empty() ? "" : "; ", name, words(permissions[name]));
    for (const json& volume : permissions["volumes"]) {
        const auto letter = [&](const char* right, const char* shown) {
            return volume[right].get<bool>() ? shown : "";
        };
        text += fmt::format("{}volume {}:{}:{}{}{}", text.empty() ? "" : "; ", volume["host"].get<std::string>(),
                            volume["guest"].get<std::string>(), letter("read", "r"), letter("write", "w"),
                            letter("execute", "x"));
    }
    return text.empty() ? "none" : text;
}

std::string memory_text(const json& memory) {
    return fmt::format(
        "image {}, stored {} as {} in {} chunks, zero {}, duplicates {}; hot {} as {} in {} chunks",
        size_text(memory["image_bytes"]), size_text(memory["stored_raw_bytes"]), size_text(memory["stored_bytes"]),
        memory["chunks"].get<std::uint64_t>(), size_text(memory["zero_bytes"]), size_text(memory["duplicate_bytes"]),
        size_text(memory["hot_raw_bytes"]), size_text(memory["hot_bytes"]), memory["hot_chunks"].get<std::uint64_t>());
}

std::string taken_text(std::uint64_t seconds) {
    constexpr std::uint64_t kFarAhead = std::uint64_t{1} << 40; // a year of more than four digits
    return time_text(static_cast<std::int64_t>(1000 * std::min(seconds, kFarAhead)));
}

} // namespace

std::string describe(const SnapshotReader& reader, const std::optional<tinykvm::CpuState>& host) {
    const json facts = describe_json(reader, host);
    std::string text;
    const auto line = [&](const char* name, const std::string& value) {
        text += fmt::format("{:<12} {}\n", name, value);
    };
    line("snapshot", fmt::format("{}, {}", facts["file"].get<std::string>(), size_text(facts["file_bytes"])));
    line("made with",
         fmt::format("kvmserver {}, zstd {}, format {}, guest kernel ABI {} ({})",
                     facts["made_with"]["kvmserver"].get<std::string>(), facts["made_with"]["zstd"].get<std::string>(),
                     facts["format"].get<std::uint32_t>(), facts["guest_abi"].get<std::uint32_t>(),
                     facts["guest_kernel_sha256"].get<std::string>().substr(0, 12)));
    line("taken", taken_text(facts["taken_at"].get<std::uint64_t>()));
    line("program", facts["program"].get<std::string>());
    line("arguments", quoted_words(facts["arguments"]));
    line("folder", facts["folder"].get<std::string>());
    line("environment", words(facts["environment"]));
    line("permissions", permissions_text(facts["permissions"]));
    line("listeners", words(facts["listeners"]));
    line("threads", std::to_string(facts["threads"].get<std::uint32_t>()));
    line("memory", memory_text(facts["memory"]));
    for (const json& region : facts["entropy"])
        line("entropy", fmt::format("{}: {} bytes at {:#x}", region["source"].get<std::string>(),
                                    region["bytes"].get<std::uint64_t>(), region["at"].get<std::uint64_t>()));
    for (const json& repeat : facts["repeats"])
        line("unique", repeat.get<std::string>());
    for (const json& handle : facts["handles"])
        line("handle", fmt::format("{} {} {}", handle["number"].get<std::int32_t>(), handle["kind"].get<std::string>(),
                                   handle["path"].get<std::string>()));
    line("CPU",
         fmt::format("{} ({} features)", facts["cpu"]["baseline"].get<std::string>(), facts["cpu"]["features"].size()));
    if (host)
        text += facts["compatible"].get<bool>()
                    ? "compatible: yes\n"
                    : fmt::format("compatible: no: {}\n", facts["incompatible_because"].get<std::string>());
    return text;
}

} // namespace kvmserver
