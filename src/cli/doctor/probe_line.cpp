#include "src/cli/doctor/probe_line.hpp"

#include <fmt/format.h>

#include "tinykvm/kvm/kvm.hpp"
#include "tinykvm/kvm/probe.hpp"

namespace kvmserver::cli {

std::string probe_line(const std::string& device) {
    const auto kvm = tinykvm::kvm::Kvm::open(device.c_str());
    return fmt::format("{} ok ({})", device, tinykvm::kvm::host_kind(kvm).name());
}

} // namespace kvmserver::cli
