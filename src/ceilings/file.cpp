#include "src/ceilings/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "src/store/functions/tenant.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/read.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver {

namespace {

using nlohmann::json;
using tinykvm::ExitCode;
using tinykvm::UserError;

constexpr const char* kPrefix = "prefix";

// Types that ceilings do not use become null, which no key accepts.
json to_json(const toml::node& node) {
    if (const auto* text = node.as_string())
        return text->get();
    if (const auto* number = node.as_integer())
        return number->get();
    if (const auto* number = node.as_floating_point())
        return number->get();
    if (const auto* list = node.as_array()) {
        json out = json::array();
        for (const toml::node& item : *list)
            out.push_back(to_json(item));
        return out;
    }
    return nullptr;
}

Ceilings section(const toml::table& table, const std::string& file, bool with_prefixes) {
    json object = json::object();
    for (const auto& [key, value] : table)
        if (!with_prefixes || key.str() != kPrefix)
            object[std::string(key.str())] = to_json(value);
    return ceilings_from(object, [&](std::string_view key) {
        const auto at = table.find(key);
        return fmt::format("{}:{}: ", file,
                           at == table.end() ? table.source().begin.line : at->first.source().begin.line);
    });
}

toml::table parse(const std::filesystem::path& path) {
    const tinykvm::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd)
        throw UserError(errno == ENOENT   ? ExitCode::not_found
                        : errno == EACCES ? ExitCode::not_permitted
                                          : ExitCode::failure,
                        fmt::format("ceilings {}: {}", path.string(), std::strerror(errno)));
    try {
        return toml::parse(tinykvm::read_text(fd.get(), "ceilings " + path.string()));
    } catch (const toml::parse_error& error) {
        throw UserError(ExitCode::usage, fmt::format("{}:{}: {}", path.string(), error.source().begin.line,
                                                     std::string(error.description())));
    }
}

} // namespace

Ceilings CeilingsFile::read_single(const std::filesystem::path& path) {
    return section(parse(path), path.string(), false);
}

CeilingsFile CeilingsFile::read(const std::filesystem::path& path) {
    const toml::table top = parse(path);
    CeilingsFile file;
    file.sections_.push_back({"", section(top, path.string(), true)});
    if (const toml::node* prefixes = top.get(kPrefix)) {
        const auto wrong = [&](const toml::node& node) {
            throw UserError(ExitCode::usage, fmt::format("{}:{}: write [prefix.\"NAME-\"] before the "
                                                         "ceilings of functions whose names begin with NAME-",
                                                         path.string(), node.source().begin.line));
        };
        if (!prefixes->is_table())
            wrong(*prefixes);
        for (const auto& [prefix, table] : *prefixes->as_table()) {
            if (!table.is_table() || prefix.str().empty())
                wrong(table);
            try {
                store::check_prefix(prefix.str());
            } catch (const UserError& error) { // no function could match it, and its ceilings would apply to nothing
                throw UserError(ExitCode::usage,
                                fmt::format("{}:{}: {}", path.string(), table.source().begin.line, error.what()));
            }
            file.sections_.push_back({std::string(prefix.str()), section(*table.as_table(), path.string(), false)});
        }
    }
    std::ranges::stable_sort(file.sections_, {}, [](const Section& each) { return each.prefix.size(); });
    return file;
}

std::vector<CeilingsFile::Section> CeilingsFile::sections_of(std::string_view function) const {
    std::vector<Section> found;
    for (const Section& each : sections_)
        if (store::in_prefix(function, each.prefix))
            found.push_back(each);
    return found;
}

Ceilings CeilingsFile::of(std::string_view function) const {
    Ceilings ceilings;
    for (const Section& each : sections_)
        if (store::in_prefix(function, each.prefix))
            ceilings = merged(ceilings, each.ceilings);
    return ceilings;
}

} // namespace kvmserver
