// What a caller's deploy may be granted at most.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "src/admin/call.hpp"
#include "src/ceilings/claims.hpp"
#include "src/ceilings/file.hpp"
#include "src/common/digest.hpp"

namespace kvmserver::admin {

// 403, with each claim and what is granted instead.
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

// The ceilings that apply to one caller and one function.
class Grants {
public:
    Grants(Call& call, const std::string& function);

    // The caller's own ceilings as JSON, which stay with the version. "": none.
    std::string own_text() const;
    std::vector<Ceilings> all() const; // the caller's and those of the daemon's file
    // Throws AboveCeiling; with `clamp` only for claims that cannot be clamped. Returns the claims to clamp.
    std::vector<Excess> require(const Claims& claims, bool clamp) const;
    // Checks the totals of functions, versions and disk as they would be with one more version of `snapshot`, or with
    // `snapshot` in the place of that of the version `instead_of`. Throws AboveCeiling.
    void require_totals(store::Store& store, const std::optional<Digest>& snapshot,
                        std::optional<std::uint64_t> instead_of = {}) const;

private:
    std::string function_;
    std::optional<Ceilings> own_;
    Ceilings of_daemon_;
    std::vector<CeilingsFile::Section> totals_; // from the daemon's file
    std::string prefix_;                        // of the token
    bool limited_ = false;                      // to the functions of that prefix
};

// The ceilings of a new token: those in the request's `ceilings`, on top of those for strangers if it has a prefix. "":
// none. Throws BadValue.
std::string token_ceilings(const std::optional<json>& given, const std::string& prefix, unsigned scopes);

} // namespace kvmserver::admin
