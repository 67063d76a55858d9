// What looking at a store brought to light.
#pragma once
#include <string>
#include <vector>

namespace kvmserver::store {

struct Finding {
    enum class Kind {
        repaired,   // was wrong, is right now
        repairable, // is wrong, and would be right after a repair
        broken,     // is wrong, and nothing here can mend it: the line says what can
        note,       // is not ours to judge
    };
    Kind kind = Kind::note;
    std::string line; // one, with the path
};

using Findings = std::vector<Finding>;

inline bool has_kind(const Findings& findings, Finding::Kind kind) {
    for (const Finding& finding : findings)
        if (finding.kind == kind)
            return true;
    return false;
}

} // namespace kvmserver::store
