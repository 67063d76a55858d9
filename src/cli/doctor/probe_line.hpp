#pragma once
#include <string>

namespace kvmserver::cli {

// Runs the probe: "/dev/kvm ok (KIND)"; throws UserError (no_kvm) whose text says what is wrong.
std::string probe_line(const std::string& device = "/dev/kvm");

} // namespace kvmserver::cli
