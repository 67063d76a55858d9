#include "src/cli/platform/public_url.hpp"

#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "src/store/functions/names.hpp"

namespace kvmserver::cli::platform {
namespace {

constexpr std::string_view kLocalhost = "localhost", kBelow = ".localhost";

bool names_this_host(std::string_view host) { return host.empty() || host == kLocalhost || host.ends_with(kBelow); }

// Of "IP:PORT": an address that others than this host's programs can reach, else "".
std::string reachable_address(const Listening& listening) {
    const std::string ip = listening.port == 0 ? "" : listening.address.substr(0, listening.address.rfind(':'));
    const bool any_or_own = ip.empty() || ip == "0.0.0.0" || ip == "[::]" || ip == "[::1]" || ip.starts_with("127.");
    return any_or_own ? "" : ip;
}

constexpr const char* kNameServices = "/etc/nsswitch.conf";

} // namespace

// By the services that know these names. To ask the resolver could take as long as its DNS server does not answer.
bool knows_names_below_localhost(const char* file) {
    std::ifstream stream(file);
    for (std::string line; std::getline(stream, line);) {
        std::istringstream words(line);
        std::string word;
        if (words >> word && word != "hosts:")
            continue;
        while (words >> word)
            if (word == "myhostname" || word == "resolve")
                return true;
    }
    return false;
}

std::string PublicUrl::text() const {
    return url + (unix.empty() ? "" : " at unix:" + unix) + (host.empty() ? "" : " with the header Host: " + host);
}

PublicUrl public_url(const std::string& route, const Listening& listening, const std::string& server) {
    const store::Route parsed = store::Route::parse(route);
    PublicUrl shown;
    std::string host = parsed.host.empty() ? std::string(kLocalhost) : parsed.host;
    if (names_this_host(parsed.host))
        if (const std::string there = !server.empty() ? server : reachable_address(listening); !there.empty()) {
            host = there;
            shown.host = parsed.host == kLocalhost ? "" : parsed.host;
        }
    const bool usual = listening.port == 0 || listening.port == (listening.tls ? 443 : 80);
    std::string path = parsed.path == "/" ? "" : parsed.path;
    if (path.ends_with('*'))
        path.pop_back();
    shown.url = fmt::format("{}://{}{}{}", listening.tls ? "https" : "http", host,
                            usual ? "" : fmt::format(":{}", listening.port), path == "/" ? "" : path);
    if (listening.port == 0)
        shown.unix = listening.address;
    return shown;
}

std::string url_by_address(const PublicUrl& shown) {
    const auto begin = shown.url.find("://") + 3;
    const auto end = shown.url.find_first_of(":/", begin);
    const std::string host = shown.url.substr(begin, end == shown.url.npos ? end : end - begin);
    if (!host.ends_with(kBelow) || !shown.unix.empty())
        return {};
    if (knows_names_below_localhost(kNameServices))
        return {};
    return shown.url.substr(0, begin) + "127.0.0.1" + (end == shown.url.npos ? "" : shown.url.substr(end));
}

} // namespace kvmserver::cli::platform
