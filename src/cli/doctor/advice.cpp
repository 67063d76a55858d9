#include "src/cli/doctor/advice.hpp"

#include <fmt/format.h>

#include <cstring>

#include "src/cli/platform/platform.hpp"

namespace kvmserver::cli::doctor {
namespace {

using platform::bytes_text;

constexpr std::uint64_t kEnoughFiles = 4096; // for a daemon with some hundred functions
constexpr std::uint64_t kEnoughSpace = std::uint64_t{1} << 30;
constexpr std::uint64_t kEnoughAddresses = std::uint64_t{256} << 30;
constexpr std::uint64_t kEnoughWatches = 8192;

using State = Check::State;

Check stop(std::string line, std::vector<std::string> mend = {}) {
    return {.subject = "device", .state = State::stops, .line = std::move(line), .mend = std::move(mend)};
}

Check good(const char* subject, std::string line) { return {.subject = subject, .line = std::move(line)}; }

Check advice(const char* subject, std::string line) {
    return {.subject = subject, .state = State::advice, .line = std::move(line)};
}

Check missing(const Facts& facts) {
    const std::string start = facts.device + " missing: ";
    if (facts.container)
        return stop(start + (facts.module_loaded
                                 ? "start the container with --device /dev/kvm"
                                 : "on the host of this container: sudo modprobe kvm_intel or kvm_amd; then "
                                   "start the container with --device /dev/kvm"));
    if (facts.cpu == Facts::Cpu::neither)
        return stop(start + (facts.hypervisor
                                 ? "this is a virtual machine without nested virtualisation: have it enabled by the "
                                   "cloud provider, or in its host (kvm_intel or kvm_amd nested=1, CPU model "
                                   "host-passthrough), then modprobe kvm_intel or kvm_amd"
                                 : "the CPU shows no virtualisation: enable VT-x or AMD-V in the firmware, then "
                                   "modprobe kvm_intel or kvm_amd"));
    const char* const module = facts.cpu == Facts::Cpu::intel ? "kvm_intel" : "kvm_amd";
    return stop(fmt::format("{}load the module: sudo modprobe {} (if it is refused, virtualisation is "
                            "disabled in the firmware: see dmesg)",
                            start, module),
                {"modprobe", module});
}

// The device belongs to another group than kvm, as root:root where udev has no rule for it, or the group has no rights.
std::string other_group(const Facts& facts, const std::string& user) {
    const std::string owner = facts.group_may ? fmt::format("it is group {}'s", facts.owner_group)
                                              : fmt::format("its group {} has no rights", facts.owner_group);
    if (facts.container)
        return fmt::format("{}: start the container with --group-add NUMBER of the group that may open {} on its host "
                           "(stat -c '%g %A' {}; if none may: sudo chgrp kvm {} && sudo chmod 660 {} there)",
                           owner, facts.device, facts.device, facts.device, facts.device);
    return fmt::format("{}; let group kvm open it: {}sudo chgrp kvm {} && sudo chmod 660 {}{}. To keep it so after a "
                       "restart: echo 'KERNEL==\"kvm\", GROUP=\"kvm\", MODE=\"0660\"' | sudo tee "
                       "/etc/udev/rules.d/65-kvm.rules",
                       owner, facts.group_exists ? "" : "sudo groupadd --system kvm && ", facts.device, facts.device,
                       facts.in_group ? "" : ", and be in that group: sudo usermod -aG kvm " + user);
}

Check refused(const Facts& facts) {
    const std::string start = fmt::format("{} not permitted ({}): ", facts.device, std::strerror(facts.refusal));
    if (facts.group_may && facts.owner_group == "kvm" && facts.in_group && !facts.session_in_group)
        return stop(start + "you are in group kvm, but this session began before that: log in again");
    const std::string user = facts.user.empty() ? "$USER" : facts.user;
    if (!facts.group_may || facts.owner_group != "kvm")
        return stop(start + other_group(facts, user));
    return stop(start + fmt::format("add yourself to group kvm (sudo usermod -aG kvm {}) and log in again", user),
                facts.user.empty() ? std::vector<std::string>{}
                                   : std::vector<std::string>{"usermod", "-aG", "kvm", facts.user});
}

} // namespace

std::vector<Check> device_checks(const Facts& facts) {
    if (!facts.present)
        return {missing(facts)};
    std::vector<Check> checks{good("device", facts.device + " exists")};
    checks.push_back(facts.permitted ? good("device", facts.device + " permitted") : refused(facts));
    // Root may always open it, but the person behind sudo may not.
    if (facts.root && facts.permitted && !facts.user.empty() && facts.user != "root" && !facts.in_group) {
        Check check = advice("device", fmt::format("{} is not in group kvm: sudo usermod -aG kvm {}, then log in again",
                                                   facts.user, facts.user));
        check.mend = {"usermod", "-aG", "kvm", facts.user};
        checks.push_back(std::move(check));
    }
    return checks;
}

std::vector<Check> other_checks(const Facts& facts) {
    std::vector<Check> checks;
    const auto add = [&checks](Check check) { checks.push_back(std::move(check)); };
    if (facts.open_files < kEnoughFiles)
        add(advice(
            "open-files",
            fmt::format("open files {}: few for many functions: ulimit -n {}{}", facts.open_files, 65536,
                        facts.max_open_files < 65536 ? ", after raising nofile in /etc/security/limits.conf" : "")));
    else
        add(good("open-files", fmt::format("open files ok ({})", facts.open_files)));
    if (facts.address_space && *facts.address_space < kEnoughAddresses)
        add(advice("address-space", fmt::format("address space {}: too little for machines: ulimit -v unlimited",
                                                bytes_text(*facts.address_space))));
    if (facts.overcommit == 2)
        add(advice("memory", "memory overcommit: vm.overcommit_memory is 2, so that machines' sparse memory is "
                             "refused: sudo sysctl vm.overcommit_memory=0"));
    else
        add(good("memory", "memory overcommit ok"));
    if (facts.smt)
        add(advice("smt", "SMT on: two functions may share a core, and each can time what the other does. For "
                          "strangers' functions: echo off | sudo tee /sys/devices/system/cpu/smt/control"));
    if (facts.watches != 0 && facts.watches < kEnoughWatches)
        add(advice("watches", fmt::format("inotify watches {}: few for dev --watch: sudo sysctl "
                                          "fs.inotify.max_user_watches=65536",
                                          facts.watches)));
    if (facts.store.empty())
        return checks;
    if (!facts.store_permitted)
        add(advice("store", fmt::format("store {} not permitted: make it yours, or choose another with "
                                        "$KVMSERVER_STORE",
                                        facts.store)));
    else if (facts.store_free < kEnoughSpace)
        add(advice("store", fmt::format("store {}: only {} free: kvmserver gc, or choose another place with "
                                        "$KVMSERVER_STORE",
                                        facts.store, bytes_text(facts.store_free))));
    else
        add(good("store", fmt::format("store {} {} ({} free)", facts.store,
                                      facts.store_present ? "ok" : "ok, made by the first deploy",
                                      bytes_text(facts.store_free))));
    return checks;
}

} // namespace kvmserver::cli::doctor
