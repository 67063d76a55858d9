#include "src/store/functions/moved.hpp"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "src/store/errors.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::store {

ForwardAddress forward_address(std::string_view url) {
    ForwardAddress address;
    address.tls = url.starts_with("https://");
    std::string_view rest = url;
    if (address.tls || rest.starts_with("http://")) {
        rest.remove_prefix(rest.find("//") + 2);
        if (rest.ends_with('/'))
            rest.remove_suffix(1);
        const std::size_t colon = rest.rfind(':');
        const std::string_view port = colon == rest.npos ? std::string_view() : rest.substr(colon + 1);
        std::string_view host = rest.substr(0, colon == rest.npos ? 0 : colon);
        const bool v6 = host.starts_with('[') && host.ends_with(']');
        if (v6)
            host = host.substr(1, host.size() - 2);
        const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
        const bool whole = error == std::errc() && end == port.data() + port.size() && address.port != 0;
        if (whole && !host.empty() && host.find_first_of("/[]@ ") == host.npos && (host.find(':') != host.npos) == v6)
            address.host = host;
    }
    if (address.host.empty())
        throw BadValue(
            fmt::format("'{}' is not of the form http://HOST:PORT or https://HOST:PORT", tinykvm::brief(url)));
    return address;
}

void Moved::check() const {
    if (to.empty() || version == 0)
        throw BadValue("a function that has moved names neither where to nor which version it is there");
    forward_address(forward);
}

std::string to_text(const Moved& moved) {
    nlohmann::json json{
        {"to", moved.to}, {"forward", moved.forward}, {"version", moved.version}, {"ca_file", moved.ca_file}};
    if (moved.pending)
        json["pending"] = {{"token", moved.token}};
    return json.dump();
}

Moved moved_from_text(const std::string& text) {
    try {
        const nlohmann::json json = nlohmann::json::parse(text);
        Moved moved{json.at("to"),      json.at("forward"),       json.at("version"),
                    json.at("ca_file"), json.contains("pending"), ""};
        if (moved.pending)
            moved.token = json.at("pending").at("token");
        moved.check();
        return moved;
    } catch (const nlohmann::json::exception&) {
        throw BadValue("it is not known where the function has moved to");
    }
}

} // namespace kvmserver::store
