// /etc/ld.so.cache of glibc: names and paths of libraries.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace tinykvm {

// Maps names to absolute paths, of 64-bit x86 libraries only. A name may have several (variants for CPUs), best first.
class LdCache {
public:
    LdCache() = default;
    // A file that cannot be read or is not a cache gives an empty cache, as in the interpreter.
    static LdCache from_file(const std::string& path);
    static LdCache parse(std::span<const std::byte> bytes);

    std::vector<std::string> find(const std::string& name) const;
    std::size_t size() const { return paths_.size(); }

private:
    std::unordered_map<std::string, std::vector<std::string>> paths_;
};

} // namespace tinykvm
