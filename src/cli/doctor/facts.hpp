// What `doctor` examines, as plain values, so that its advice can be tested on any host.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace kvmserver::cli::doctor {

struct Facts {
    // The device.
    std::string device;
    bool present = false, permitted = false;
    int refusal = 0;         // errno if it is not permitted
    std::string owner_group; // of the device; its number if it has no name
    bool group_may = false;  // the group may read and write it

    // The host.
    enum class Cpu { neither, intel, amd } cpu = Cpu::neither; // the virtualization extension
    bool hypervisor = false;                                   // this host is itself a virtual machine
    bool container = false;
    bool module_loaded = false; // kvm
    bool nested_off = false;    // the module refuses nested machines
    bool smt = false;           // two threads of a core run at once

    // The user who is meant to run machines. For root under sudo: the user who called sudo.
    std::string user;
    bool root = false;
    bool group_exists = true;      // kvm
    bool in_group = false;         // by the system's group database
    bool session_in_group = false; // in this session too

    // Limits.
    std::uint64_t open_files = 0, max_open_files = 0;
    std::optional<std::uint64_t> address_space; // bytes; nothing: unlimited
    int overcommit = 0;                         // vm.overcommit_memory
    std::uint64_t watches = 0;                  // fs.inotify.max_user_watches; 0: unknown

    // The store.
    std::string store; // "": unknown
    bool store_present = false, store_permitted = true;
    std::uint64_t store_free = 0; // bytes free where it is or would be
};

Facts gather(const std::string& device, const std::string& store);

} // namespace kvmserver::cli::doctor
