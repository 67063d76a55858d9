#include "src/cli/probe_line.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <cstring>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::cli {

std::string probe_line(const std::string& device) {
    constexpr unsigned long kGetApiVersion = _IO(0xAE, 0x00); // KVM_GET_API_VERSION, Linux Documentation/virt/kvm/api.rst 4.1
    constexpr int kApiVersion = 12; // "applications should refuse to run if it returns a value other than 12"
    const auto unusable = [](const std::string& why) -> tinykvm::UserError {
        return {tinykvm::ExitCode::no_kvm, why};
    };
    const tinykvm::UniqueFd fd(::open(device.c_str(), O_RDWR | O_CLOEXEC));
    if (fd.get() < 0)
        throw unusable(fmt::format("{} cannot be opened: {}", device, std::strerror(errno)));
    const int version = ::ioctl(fd.get(), kGetApiVersion, 0);
    if (version < 0)
        throw unusable(fmt::format("{} is not KVM: {}", device, std::strerror(errno)));
    if (version != kApiVersion)
        throw unusable(fmt::format("{} has KVM API version {}; {} is needed", device, version, kApiVersion));
    return fmt::format("{} ok (KVM API {})", device, version);
}

} // namespace kvmserver::cli
