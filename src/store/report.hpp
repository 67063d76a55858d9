// Findings of a check of the store.
#pragma once
#include <string>
#include <vector>

namespace kvmserver::store {

struct Finding {
    enum class Kind {
        repaired,   // was wrong and has been repaired
        repairable, // is wrong and can be repaired
        broken,     // is wrong and cannot be repaired here: the line says what the user can do
        note,       // not an error of the store
    };
    Kind kind = Kind::note;
    std::string line; // one line, including the path
};

using Findings = std::vector<Finding>;

inline bool has_kind(const Findings& findings, Finding::Kind kind) {
    for (const Finding& finding : findings)
        if (finding.kind == kind)
            return true;
    return false;
}

} // namespace kvmserver::store
