// kvmserver doctor: can machines run here? One line a check.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "src/cli/command.hpp"
#include "src/cli/probe_line.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::cli {
namespace {

// Effective rights: what open(2) will ask.
bool may_open(const std::string& device) {
    return ::faccessat(AT_FDCWD, device.c_str(), R_OK | W_OK, AT_EACCESS) == 0;
}

int doctor(const std::string& device, Context& context) {
    const int unusable = static_cast<int>(tinykvm::ExitCode::no_kvm);
    std::error_code error;
    if (!std::filesystem::exists(device, error)) {
        context.out << fmt::format("{} missing: load the module (modprobe kvm_intel or kvm_amd), and have "
                                   "virtualisation enabled in the firmware or by the cloud provider\n",
                                   device);
        return unusable;
    }
    context.out << device << " exists\n";
    if (!may_open(device)) {
        context.out << fmt::format(
            "{} not permitted ({}): add yourself to group kvm (sudo usermod -aG kvm $USER) and "
            "log in again\n",
            device, std::strerror(errno));
        return unusable;
    }
    context.out << device << " permitted\n";
    try {
        context.out << probe_line(device) << '\n';
    } catch (const tinykvm::UserError& reason) {
        context.out << reason.what() << '\n';
        return static_cast<int>(reason.code());
    }
    return 0;
}

} // namespace

Command doctor_command(const std::string& device) {
    return {.name = "doctor",
            .synopsis = "",
            .summary = "check that machines can run here",
            .operands = Operands::none,
            .options = {},
            .action = [device](const Invocation&, Context& context) { return doctor(device, context); }};
}

} // namespace kvmserver::cli
