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

Check missing(const Facts& facts) {
    const std::string start = facts.device + " missing: ";
    if (facts.container)
        return {.line = start + (facts.module_loaded
                                     ? "start the container with --device /dev/kvm"
                                     : "on the host of this container: sudo modprobe kvm_intel or kvm_amd; then "
                                       "start the container with --device /dev/kvm"),
                .stops = true};
    if (facts.cpu == Facts::Cpu::neither)
        return {.line =
                    start + (facts.hypervisor
                                 ? "this is a virtual machine without nested virtualisation: have it enabled by the "
                                   "cloud provider, or in its host (kvm_intel or kvm_amd nested=1, CPU model "
                                   "host-passthrough), then modprobe kvm_intel or kvm_amd"
                                 : "the CPU shows no virtualisation: enable VT-x or AMD-V in the firmware, then "
                                   "modprobe kvm_intel or kvm_amd"),
                .stops = true};
    const char* const module = facts.cpu == Facts::Cpu::intel ? "kvm_intel" : "kvm_amd";
    return {.line = fmt::format("{}load the module: sudo modprobe {} (if it is refused, virtualisation is "
                                "disabled in the firmware: see dmesg)",
                                start, module),
            .stops = true,
            .mend = {"modprobe", module}};
}

Check refused(const Facts& facts) {
    const std::string start = fmt::format("{} not permitted ({}): ", facts.device, std::strerror(facts.refusal));
    if (facts.group_may && facts.owner_group == "kvm" && facts.in_group && !facts.session_in_group)
        return {.line = start + "you are in group kvm, but this session began before that: log in again",
                .stops = true};
    const std::string user = facts.user.empty() ? "$USER" : facts.user;
    if (!facts.group_may || facts.owner_group != "kvm")
        return {.line =
                    fmt::format("{}it is group {}'s; let group kvm open it: sudo chgrp kvm {} && sudo chmod 660 {}{}",
                                start, facts.owner_group, facts.device, facts.device,
                                facts.in_group ? "" : ", and be in that group: sudo usermod -aG kvm " + user),
                .stops = true};
    return {.line = start + fmt::format("add yourself to group kvm (sudo usermod -aG kvm {}) and log in again", user),
            .stops = true,
            .mend = facts.user.empty() ? std::vector<std::string>{}
                                       : std::vector<std::string>{"usermod", "-aG", "kvm", facts.user}};
}

} // namespace

std::vector<Check> device_checks(const Facts& facts) {
    if (!facts.present)
        return {missing(facts)};
    std::vector<Check> checks{{facts.device + " exists"}};
    checks.push_back(facts.permitted ? Check{facts.device + " permitted"} : refused(facts));
    // Root may always open it, but the person behind sudo may not.
    if (facts.root && facts.permitted && !facts.user.empty() && facts.user != "root" && !facts.in_group)
        checks.push_back({.line = fmt::format("{} is not in group kvm: sudo usermod -aG kvm {}, then log in "
                                              "again",
                                              facts.user, facts.user),
                          .mend = {"usermod", "-aG", "kvm", facts.user}});
    return checks;
}

std::vector<Check> other_checks(const Facts& facts) {
    std::vector<Check> checks;
    if (facts.open_files < kEnoughFiles)
        checks.push_back(
            {fmt::format("open files {}: few for many functions: ulimit -n {}{}", facts.open_files, 65536,
                         facts.max_open_files < 65536 ? ", after raising nofile in /etc/security/limits.conf" : "")});
    else
        checks.push_back({fmt::format("open files ok ({})", facts.open_files)});
    if (facts.address_space && *facts.address_space < kEnoughAddresses)
        checks.push_back({fmt::format("address space {}: too little for machines: ulimit -v unlimited",
                                      bytes_text(*facts.address_space))});
    if (facts.overcommit == 2)
        checks.push_back(
            {"memory overcommit: vm.overcommit_memory is 2, so that machines' sparse memory is refused: sudo "
             "sysctl vm.overcommit_memory=0"});
    else
        checks.push_back({"memory overcommit ok"});
    if (facts.smt)
        checks.push_back(
            {"SMT on: two functions may share a core, and each can time what the other does. For strangers' functions: "
             "echo off | sudo tee /sys/devices/system/cpu/smt/control"});
    if (facts.watches != 0 && facts.watches < kEnoughWatches)
        checks.push_back({fmt::format("inotify watches {}: few for dev --watch: sudo sysctl "
                                      "fs.inotify.max_user_watches=65536",
                                      facts.watches)});
    if (facts.store.empty())
        return checks;
    if (!facts.store_permitted)
        checks.push_back({fmt::format("store {} not permitted: make it yours, or choose another with "
                                      "$KVMSERVER_STORE",
                                      facts.store)});
    else if (facts.store_free < kEnoughSpace)
        checks.push_back({fmt::format("store {}: only {} free: kvmserver gc, or choose another place with "
                                      "$KVMSERVER_STORE",
                                      facts.store, bytes_text(facts.store_free))});
    else
        checks.push_back(
            {fmt::format("store {} {} ({} free)", facts.store,
                         facts.store_present ? "ok" : "ok, made by the first deploy", bytes_text(facts.store_free))});
    return checks;
}

} // namespace kvmserver::cli::doctor
