// Collects the facts of a snapshot as JSON.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <span>

#include "src/snapshot/cpu_check.hpp"
#include "src/snapshot/inspect.hpp"
#include "tinykvm/base/guest_addr.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver {

namespace {

using nlohmann::json;

json texts(const std::vector<std::string>& values) {
    json list = json::array();
    for (const std::string& value : values)
        list.push_back(tinykvm::printable(value));
    return list;
}

json rules(const std::vector<tinykvm::NetRule>& values) {
    json list = json::array();
    for (const tinykvm::NetRule& rule : values)
        list.push_back(rule.port == 0 ? tinykvm::printable(rule.host)
                                      : fmt::format("{}:{}", tinykvm::printable(rule.host), rule.port));
    return list;
}

json permissions_of(const tinykvm::Permissions& permissions) {
    json volumes = json::array();
    for (const tinykvm::Volume& volume : permissions.volumes)
        volumes.push_back({{"host", tinykvm::printable(volume.host)},
                           {"guest", tinykvm::printable(volume.guest)},
                           {"read", volume.read},
                           {"write", volume.write},
                           {"execute", volume.execute}});
    return {{"all", permissions.all},
            {"read", texts(permissions.read)},
            {"write", texts(permissions.write)},
            {"env", texts(permissions.env)},
            {"connect", rules(permissions.connect)},
            {"listen", rules(permissions.listen)},
            {"volumes", std::move(volumes)},
            {"implied_read", texts(permissions.implied_read)}};
}

const char* kind_name(tinykvm::HandleKind kind) {
    constexpr std::array names{"stdio", "file", "folder", "device", "socket", "memfd", "event"};
    const auto number = static_cast<std::size_t>(kind);
    return number < names.size() ? names[number] : "unknown";
}

json handles_of(const std::vector<tinykvm::HandleState>& handles) {
    json list = json::array();
    for (const tinykvm::HandleState& handle : handles)
        list.push_back({{"number", handle.number},
                        {"kind", kind_name(handle.kind)},
                        {"path", tinykvm::printable(handle.path)},
                        {"content_bytes", handle.content.size()}});
    return list;
}

json memory_of(const SnapshotReader& reader) {
    std::uint64_t stored = 0, hot_stored = 0, pages = 0, hot_pages = 0, frames = 0, hot_chunks = 0;
    for (const ChunkInfo& chunk : reader.chunks()) {
        stored += chunk.stored;
        pages += chunk.pages;
        frames += chunk.frames();
        if (chunk.hot) {
            hot_stored += chunk.stored;
            hot_pages += chunk.pages;
            ++hot_chunks;
        }
    }
    constexpr std::uint64_t page = tinykvm::kPageSize;
    return {{"image_bytes", reader.state().frames * page},
            {"stored_raw_bytes", pages * page},
            {"stored_bytes", stored},
            {"duplicate_bytes", (frames - pages) * page},
            {"zero_bytes", (reader.state().frames - frames) * page},
            {"hot_raw_bytes", hot_pages * page},
            {"hot_bytes", hot_stored},
            {"chunks", reader.chunks().size()},
            {"hot_chunks", hot_chunks}};
}

json cpu_of(const tinykvm::CpuState& cpu) {
    return {{"baseline", cpu_level(cpu)}, {"features", cpu_features(cpu)}, {"xcr0", cpu.xcr0}};
}

template <class Address>
std::optional<Address> as(const std::vector<std::uint8_t>& bytes) {
    Address address;
    if (bytes.size() < sizeof address)
        return std::nullopt;
    std::memcpy(&address, bytes.data(), sizeof address);
    return address;
}

std::string unix_text(const std::vector<std::uint8_t>& bytes) {
    constexpr std::size_t begin = offsetof(sockaddr_un, sun_path);
    const auto path = std::span(bytes).subspan(std::min(begin, bytes.size()));
    const std::string name(path.begin(), path.end());
    if (!name.empty() && name[0] == '\0')
        return "unix:@" + tinykvm::printable(name.substr(1));
    return "unix:" + tinykvm::printable(name.substr(0, name.find('\0')));
}

} // namespace

std::string listener_text(const tinykvm::ListenerState& listener) {
    char text[INET6_ADDRSTRLEN] = "";
    if (const auto in = as<sockaddr_in>(listener.address); listener.family == AF_INET && in)
        return fmt::format("{}:{}", ::inet_ntop(AF_INET, &in->sin_addr, text, sizeof text), ntohs(in->sin_port));
    if (const auto in6 = as<sockaddr_in6>(listener.address); listener.family == AF_INET6 && in6)
        return fmt::format("[{}]:{}", ::inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof text), ntohs(in6->sin6_port));
    if (listener.family == AF_UNIX)
        return unix_text(listener.address);
    return fmt::format("family {}", listener.family);
}

json describe_json(const SnapshotReader& reader, const std::optional<tinykvm::CpuState>& host) {
    const tinykvm::MachineState& state = reader.state();
    json listeners = json::array();
    for (const tinykvm::ListenerState& listener : state.listeners)
        listeners.push_back(listener_text(listener));
    json entropy = json::array();
    for (const tinykvm::EntropyRegion& region : state.entropy)
        entropy.push_back({{"source", tinykvm::printable(region.source)}, {"at", region.at}, {"bytes", region.bytes}});
    json facts{
        {"file", tinykvm::printable(reader.path().native())},
        {"file_bytes", reader.file_bytes()},
        {"format", reader.format_version()},
        {"guest_abi", state.guest_abi},
        {"guest_kernel_sha256", tinykvm::to_hex(state.guest_kernel_digest)},
        {"made_with",
         {{"kvmserver", tinykvm::printable(reader.made_with().kvmserver)},
          {"zstd", tinykvm::printable(reader.made_with().zstd)}}},
        {"program", tinykvm::printable(state.program.path)},
        {"arguments", texts(state.program.args)},
        {"folder", tinykvm::printable(state.program.cwd)},
        {"environment", texts(state.program.env_names)},
        {"permissions", permissions_of(state.permissions)},
        {"listeners", std::move(listeners)},
        {"threads", state.threads},
        {"entropy", std::move(entropy)},
        {"repeats", texts(state.repeats)},
        {"memory", memory_of(reader)},
        {"handles", handles_of(state.handles)},
        {"cpu", cpu_of(state.cpu)},
        {"taken_at", state.real_ns / 1'000'000'000},
    };
    if (host) {
        const CpuDifference difference = compare_cpu(state.cpu, *host);
        facts["compatible"] = difference.compatible();
        if (!difference.compatible())
            facts["incompatible_because"] = difference.text();
    }
    return facts;
}

} // namespace kvmserver
