// What a deploy by a caller is granted at most.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "src/admin/call.hpp"
#include "src/ceilings/claims.hpp"
#include "src/ceilings/file.hpp"
#include "src/common/digest.hpp"

namespace kvmserver::admin {

// 403: each claim, and what is granted in its place.
class AboveCeiling : public tinykvm::UserError {
public:
    AboveCeiling(const std::string& function, std::vector<Excess> claims);
    const std::vector<Excess>& claims() const { return claims_; }
    const char* hint() const { return hint_; }

private:
    std::vector<Excess> claims_;
    const char* hint_;
};
json claims_json(const std::vector<Excess>& claims); // [{claim, granted}]

class Grants {
public:
    Grants(Call& call, const std::string& function);

    // Of who deploys: a version stays under them. "": none.
    std::string own_text() const;
    std::vector<Ceilings> all() const; // they and those of the daemon's file
    // Throws AboveCeiling; with `clamp` only for what cannot be clamped. Returns what will be.
    std::vector<Excess> require(const Claims& claims, bool clamp) const;
    // Of functions, versions and disk, with one more version of `snapshot`. Throws AboveCeiling.
    void require_totals(store::Store& store, const std::optional<Digest>& snapshot) const;

private:
    std::string function_;
    std::optional<Ceilings> own_;
    Ceilings of_daemon_;
    std::vector<CeilingsFile::Section> totals_; // of the daemon's file
    std::string prefix_;                        // of the token
    bool limited_ = false;                      // to that
};

// Of a request for a new token: what its `ceilings` grant, over those for strangers where it has a prefix.
// "": none. Throws BadValue.
std::string token_ceilings(const std::optional<json>& given, const std::string& prefix, unsigned scopes);

} // namespace kvmserver::admin
