#pragma once
#include <string>

namespace kvmserver::cli {

// Probes KVM: "/dev/kvm ok (KIND)". Throws UserError (no_kvm) with the reason.
std::string probe_line(const std::string& device = "/dev/kvm");

} // namespace kvmserver::cli
