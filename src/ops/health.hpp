// Whether a version may go live.
#pragma once
#include <string>

#include "src/ops/child.hpp"
#include "src/store/digest.hpp"
#include "src/store/store.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::ops {

// No answer of a status below 500 in time.
class Unhealthy : public tinykvm::UserError {
public:
    Unhealthy(const std::string& why, std::string output);
    const std::string& output() const { return output_; } // what the machine and its program said

private:
    std::string output_;
};

struct Trial {
    std::string executable = kSelf; // a kvmserver
    std::string manifest;           // JSON, as the store keeps it: for the health path
};

// Restores a machine from the snapshot as it lies in the store, with the rights that it was made with, as the
// daemon will, and asks it for the manifest's health path, or only connects when it has none. Throws
// Unhealthy; BadValue for a manifest that cannot be.
void require_health(store::Store& store, const store::Digest& snapshot, const Trial& trial);

} // namespace kvmserver::ops
