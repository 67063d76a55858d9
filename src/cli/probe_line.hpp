#pragma once
#include <string>

namespace kvmserver::cli {

// Tries KVM for real: "/dev/kvm ok (...)"; throws UserError (no_kvm) whose text says what is wrong.
std::string probe_line(const std::string& device = "/dev/kvm");

} // namespace kvmserver::cli
