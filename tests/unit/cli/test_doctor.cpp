// doctor's advice for hosts that are not this one.
#include "src/cli/doctor/advice.hpp"
#include "tests/catch.hpp"
#include "tests/unit/cli/harness.hpp"
#include "tests/unit/cli/matchers.hpp"

#include <cerrno>

using namespace kvmserver::cli;
using namespace kvmserver::cli::doctor;

namespace {

Facts good() {
    Facts facts;
    facts.device = "/dev/kvm";
    facts.present = facts.permitted = facts.module_loaded = true;
    facts.owner_group = "kvm";
    facts.group_may = facts.in_group = facts.session_in_group = true;
    facts.cpu = Facts::Cpu::intel;
    facts.user = "ann";
    facts.open_files = facts.max_open_files = 1 << 20;
    facts.store = "/home/ann/store";
    facts.store_free = std::uint64_t{20} << 30;
    return facts;
}

std::string text(const std::vector<Check>& checks) {
    std::string all;
    for (const Check& check : checks)
        all += check.line + '\n';
    return all;
}

std::string device_text(const Facts& facts) { return text(device_checks(facts)); }

} // namespace

TEST_CASE("doctor: nothing to say") {
    CHECK(device_text(good()) == "/dev/kvm exists\n/dev/kvm permitted\n");
    CHECK(text(other_checks(good())) == "open files ok (1048576)\nmemory overcommit ok\nstore "
                                        "/home/ann/store ok, made by the first deploy (20 GiB free)\n");
}

TEST_CASE("doctor: a missing device") {
    Facts facts = good();
    facts.present = facts.module_loaded = false;
    CHECK_THAT(device_text(facts), contains("sudo modprobe kvm_intel ("));
    CHECK(device_checks(facts).back().mend == std::vector<std::string>{"modprobe", "kvm_intel"});
    CHECK(device_checks(facts).back().stops());
    facts.cpu = Facts::Cpu::amd;
    CHECK_THAT(device_text(facts), contains("sudo modprobe kvm_amd ("));
    facts.cpu = Facts::Cpu::neither;
    CHECK_THAT(device_text(facts), contains("firmware"));
    CHECK(device_checks(facts).back().mend.empty());
    facts.hypervisor = true;
    CHECK_THAT(device_text(facts), contains("nested virtualisation"));
    facts.container = true;
    CHECK_THAT(device_text(facts), contains("on the host of this container") && contains("--device /dev/kvm"));
    facts.module_loaded = true;
    CHECK_THAT(device_text(facts), contains("start the container with --device /dev/kvm") && !contains("modprobe"));
}

TEST_CASE("doctor: a device that may not be opened") {
    Facts facts = good();
    facts.permitted = facts.in_group = facts.session_in_group = false;
    facts.refusal = EACCES;
    CHECK_THAT(device_text(facts),
               contains("not permitted (Permission denied)") && contains("sudo usermod -aG kvm ann"));
    CHECK(device_checks(facts).back().stops());
    CHECK(device_checks(facts).back().mend == std::vector<std::string>{"usermod", "-aG", "kvm", "ann"});
    facts.in_group = true;
    CHECK_THAT(device_text(facts), contains("log in again") && !contains("usermod"));
    facts.owner_group = "root";
    CHECK_THAT(device_text(facts), contains("chgrp kvm /dev/kvm") && !contains("usermod"));
    facts.in_group = false;
    CHECK_THAT(device_text(facts), contains("it is group root's") && contains("chgrp kvm /dev/kvm") &&
                                       contains("usermod -aG kvm ann") && !contains("groupadd"));
    facts.group_exists = false;
    CHECK_THAT(device_text(facts), contains("sudo groupadd --system kvm && sudo chgrp kvm /dev/kvm"));
    facts.container = true; // a group of the container is nothing to its host
    CHECK_THAT(device_text(facts), contains("--group-add") && !contains("usermod"));
    facts = good();
    facts.root = true; // by sudo
    facts.in_group = false;
    CHECK(device_checks(facts).back().mend == std::vector<std::string>{"usermod", "-aG", "kvm", "ann"});
    CHECK_FALSE(device_checks(facts).back().stops());
}

TEST_CASE("doctor: limits and the store") {
    Facts facts = good();
    facts.open_files = 1024;
    facts.max_open_files = 4096;
    facts.address_space = std::uint64_t{1} << 30;
    facts.overcommit = 2;
    facts.watches = 100;
    facts.store_free = 1 << 20;
    CHECK_THAT(text(other_checks(facts)),
               contains("ulimit -n 65536, after raising nofile") && contains("ulimit -v unlimited") &&
                   contains("sysctl vm.overcommit_memory=0") && contains("max_user_watches=65536") &&
                   contains("only 1.0 MiB free: kvmserver gc"));
    CHECK_THAT(text(other_checks(facts)), !contains("SMT"));
    facts.smt = true;
    CHECK_THAT(text(other_checks(facts)), contains("SMT on: ") && contains("/sys/devices/system/cpu/smt/control"));
    facts.store_permitted = false;
    CHECK_THAT(text(other_checks(facts)), contains("store /home/ann/store not permitted"));
}
