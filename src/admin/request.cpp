#include "src/admin/request.hpp"

#include <fmt/format.h>

#include "src/http/fields.hpp"
#include "src/store/errors.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::admin {
namespace {

std::string decoded(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            out += text[i];
            continue;
        }
        const int high = i + 2 < text.size() ? tinykvm::hex_digit(text[i + 1]) : -1;
        const int low = high < 0 ? -1 : tinykvm::hex_digit(text[i + 2]);
        if (low < 0 || (high == 0 && low == 0))
            throw store::BadValue("the request's path or query holds a wrong %-encoding");
        out += static_cast<char>(high * 16 + low);
        i += 2;
    }
    return out;
}

} // namespace

std::string_view Request::header(std::string_view name) const {
    for (const auto& [key, value] : headers)
        if (http::equal_nocase(key, name))
            return value;
    return {};
}

void set_target(Request& request, std::string_view target) {
    const auto mark = target.find('?');
    std::string_view path = target.substr(0, mark);
    if (!path.starts_with('/'))
        throw store::BadValue("the request's path must begin with /");
    request.segments.clear();
    for (path.remove_prefix(1);;) {
        const auto slash = path.find('/');
        request.segments.push_back(decoded(path.substr(0, slash)));
        if (slash == path.npos)
            break;
        path.remove_prefix(slash + 1);
    }
    request.query.clear();
    std::string_view rest = mark == target.npos ? std::string_view() : target.substr(mark + 1);
    while (!rest.empty()) {
        const auto end = rest.find('&');
        const std::string_view pair = rest.substr(0, end);
        const auto equals = pair.find('=');
        const std::string name = decoded(pair.substr(0, equals));
        const std::string value = equals == pair.npos ? "" : decoded(pair.substr(equals + 1));
        if (!name.empty() && !request.query.emplace(name, value).second)
            throw store::BadValue(fmt::format("the query holds '{}' twice", name));
        rest = end == rest.npos ? std::string_view() : rest.substr(end + 1);
    }
}

std::string percent_encoded(std::string_view text) {
    std::string out;
    for (const char c : text) {
        const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                           std::string_view("-._~@:").find(c) != std::string_view::npos;
        out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
    return out;
}

} // namespace kvmserver::admin
