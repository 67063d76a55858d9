#include "tinykvm/linux/path_rules.hpp"

#include "tinykvm/base/path_text.hpp"

namespace tinykvm {

void PathRules::add(const std::string& path, Rights rights) {
    nodes_[path].rule |= rights;
    add_lookup(path);
}

void PathRules::add_volume(const std::string& path, Rights rights) {
    Node& node = nodes_[path];
    node.is_volume = true;
    node.volume = rights;
    add_lookup(path);
}

void PathRules::drop_beneath(std::string_view path) {
    for (auto& [at, node] : nodes_)
        if (is_beneath(at, path))
            node.rule = 0;
}

void PathRules::add_lookup(const std::string& path) {
    std::string at = path;
    while (at != "/") {
        nodes_[at].lookup = true;
        at = split_last(at).first;
    }
    nodes_["/"].lookup = true;
}

const PathRules::Node* PathRules::find(std::string_view path) const {
    const auto found = nodes_.find(path);
    return found == nodes_.end() ? nullptr : &found->second;
}

Rights PathRules::of(std::string_view path) const {
    Rights rights = 0;
    std::size_t end = 1; // length of the current prefix: "/", "/a", "/a/b"
    while (true) {
        if (const Node* node = find(path.substr(0, end))) {
            if (node->is_volume)
                rights = node->volume;
            rights |= node->rule;
            if (end == path.size() && node->lookup)
                rights |= kLookup;
        }
        if (end == path.size())
            return rights;
        end = std::min(path.find('/', end == 1 ? 1 : end + 1), path.size());
    }
}

} // namespace tinykvm
