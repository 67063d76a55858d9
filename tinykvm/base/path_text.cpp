#include "tinykvm/base/path_text.hpp"

namespace tinykvm {

PathText cut_path(std::string_view path) {
    PathText text;
    text.absolute = !path.empty() && path.front() == '/';
    text.must_be_directory = !path.empty() && path.back() == '/';
    std::string_view last;
    while (!path.empty()) {
        const std::size_t end = std::min(path.find('/'), path.size());
        const std::string_view part = path.substr(0, end);
        path.remove_prefix(std::min(end + 1, path.size()));
        if (part.empty())
            continue;
        last = part;
        if (part == ".")
            continue;
        if (part == "..")
            text.dots = true;
        text.parts.emplace_back(part);
    }
    text.ends_in_dot = last == ".";
    text.ends_in_dotdot = last == "..";
    text.must_be_directory |= text.ends_in_dot || text.ends_in_dotdot;
    return text;
}

std::string join_parts(const std::vector<std::string>& parts) {
    std::string path;
    for (const std::string& part : parts) {
        path += '/';
        path += part;
    }
    return path.empty() ? "/" : path;
}

std::string join_path(const std::string& base, const std::string& rel) {
    if (!rel.empty() && rel.front() == '/')
        return rel;
    return base.ends_with('/') ? base + rel : base + '/' + rel;
}

bool is_beneath(std::string_view path, std::string_view folder) {
    if (folder == "/")
        return true;
    return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

std::pair<std::string, std::string> split_last(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

} // namespace tinykvm
