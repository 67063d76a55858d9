// The saved fields of each plain value and their names. A new field of tinykvm/machine/state.hpp needs one line here
// and a new format::kVersion (a test counts the fields), unless it is optional.
#pragma once
#include <tuple>

#include "src/snapshot/metadata.hpp"

namespace kvmserver {

template <class T>
struct Fields; // all(): a tuple of Field

// Types that come in long lists are saved as an array of their fields, in this order, instead of an object.
template <class T>
inline constexpr bool kAsRow = false;
template <>
inline constexpr bool kAsRow<tinykvm::RegionState> = true;
template <>
inline constexpr bool kAsRow<tinykvm::FrameRun> = true;
template <>
inline constexpr bool kAsRow<tinykvm::CpuidLeaf> = true;
template <>
inline constexpr bool kAsRow<tinykvm::LargePageState> = true;
template <>
inline constexpr bool kAsRow<tinykvm::FileMappingState> = true;
template <>
inline constexpr bool kAsRow<tinykvm::MemoryFileAttributes> = true;

template <class Owner, class T>
struct Field {
    const char* name;
    T Owner::*member;
    bool optional = false; // may be missing in a file of the same format; an empty list is left out
};
template <class Owner, class T>
Field(const char*, T Owner::*) -> Field<Owner, T>;
template <class Owner, class T>
Field(const char*, T Owner::*, bool) -> Field<Owner, T>;

template <>
struct Fields<MadeWith> {
    static constexpr auto all() {
        return std::tuple{Field{"kvmserver", &MadeWith::kvmserver}, Field{"zstd", &MadeWith::zstd}};
    }
};

template <>
struct Fields<tinykvm::RegionState> {
    using T = tinykvm::RegionState;
    static constexpr auto all() {
        return std::tuple{Field{"begin", &T::begin}, Field{"end", &T::end}, Field{"prot", &T::prot},
                          Field{"flags", &T::flags}, Field{"name", &T::name}};
    }
};

template <>
struct Fields<tinykvm::FrameRun> {
    using T = tinykvm::FrameRun;
    static constexpr auto all() { return std::tuple{Field{"first", &T::first}, Field{"count", &T::count}}; }
};

template <>
struct Fields<tinykvm::ListenerState> {
    using T = tinykvm::ListenerState;
    static constexpr auto all() {
        return std::tuple{Field{"id", &T::id}, Field{"family", &T::family}, Field{"address", &T::address},
                          Field{"flags", &T::flags, true}};
    }
};

template <>
struct Fields<tinykvm::CpuidLeaf> {
    using T = tinykvm::CpuidLeaf;
    static constexpr auto all() {
        return std::tuple{Field{"function", &T::function},
                          Field{"index", &T::index},
                          Field{"flags", &T::flags},
                          Field{"eax", &T::eax},
                          Field{"ebx", &T::ebx},
                          Field{"ecx", &T::ecx},
                          Field{"edx", &T::edx}};
    }
};

template <>
struct Fields<tinykvm::CpuState> {
    using T = tinykvm::CpuState;
    static constexpr auto all() { return std::tuple{Field{"xcr0", &T::xcr0}, Field{"cpuid", &T::cpuid}}; }
};

template <>
struct Fields<tinykvm::FileIdentity> {
    using T = tinykvm::FileIdentity;
    static constexpr auto all() {
        return std::tuple{Field{"dev", &T::dev}, Field{"ino", &T::ino}, Field{"size", &T::size},
                          Field{"mtime_ns", &T::mtime_ns}};
    }
};

template <>
struct Fields<tinykvm::HandleState> { // without `content`, which follows the JSON (FORMAT.md)
    using T = tinykvm::HandleState;
    static constexpr auto all() {
        return std::tuple{Field{"number", &T::number},
                          Field{"kind", &T::kind},
                          Field{"path", &T::path},
                          Field{"flags", &T::flags},
                          Field{"identity", &T::identity},
                          Field{"family", &T::family},
                          Field{"type", &T::type},
                          Field{"protocol", &T::protocol},
                          Field{"bound", &T::bound, true},
                          Field{"peer", &T::peer, true},
                          Field{"memory_file", &T::memory_file, true}};
    }
};

template <>
struct Fields<tinykvm::MemoryFileAttributes> {
    using T = tinykvm::MemoryFileAttributes;
    static constexpr auto all() {
        return std::tuple{Field{"mode", &T::mode}, Field{"seals", &T::seals}, Field{"atime_ns", &T::atime_ns},
                          Field{"mtime_ns", &T::mtime_ns}};
    }
};

template <>
struct Fields<tinykvm::Volume> {
    using T = tinykvm::Volume;
    static constexpr auto all() {
        return std::tuple{Field{"host", &T::host}, Field{"guest", &T::guest}, Field{"read", &T::read},
                          Field{"write", &T::write}, Field{"execute", &T::execute}};
    }
};

template <>
struct Fields<tinykvm::NetRule> {
    using T = tinykvm::NetRule;
    static constexpr auto all() { return std::tuple{Field{"host", &T::host}, Field{"port", &T::port}}; }
};

template <>
struct Fields<tinykvm::Permissions> {
    using T = tinykvm::Permissions;
    static constexpr auto all() {
        return std::tuple{Field{"all", &T::all},         Field{"read", &T::read},
                          Field{"write", &T::write},     Field{"env", &T::env},
                          Field{"connect", &T::connect}, Field{"listen", &T::listen},
                          Field{"volumes", &T::volumes}, Field{"implied_read", &T::implied_read}};
    }
};

template <>
struct Fields<tinykvm::Limits> {
    using T = tinykvm::Limits;
    static constexpr auto all() {
        return std::tuple{Field{"boot_seconds", &T::boot_seconds},
                          Field{"request_seconds", &T::request_seconds},
                          Field{"request_total_seconds", &T::request_total_seconds},
                          Field{"request_cpu_seconds", &T::request_cpu_seconds, true},
                          Field{"memory", &T::memory},
                          Field{"address_space", &T::address_space},
                          Field{"request_memory", &T::request_memory},
                          Field{"keep_memory", &T::keep_memory},
                          Field{"request_arena", &T::request_arena, true},
                          Field{"open_files", &T::open_files},
                          Field{"executable_heap", &T::executable_heap}};
    }
};

template <>
struct Fields<tinykvm::LateVariable> {
    using T = tinykvm::LateVariable;
    static constexpr auto all() {
        return std::tuple{Field{"name", &T::name}, Field{"at", &T::at}, Field{"bytes", &T::bytes}};
    }
};

template <>
struct Fields<tinykvm::EntropyRegion> {
    using T = tinykvm::EntropyRegion;
    static constexpr auto all() {
        return std::tuple{Field{"at", &T::at}, Field{"bytes", &T::bytes}, Field{"fill", &T::fill},
                          Field{"constant", &T::constant}, Field{"source", &T::source}};
    }
};

template <>
struct Fields<tinykvm::LargePageState> {
    using T = tinykvm::LargePageState;
    static constexpr auto all() {
        return std::tuple{Field{"at", &T::at}, Field{"sha256", &T::sha256}, Field{"hot", &T::hot}};
    }
};

template <>
struct Fields<tinykvm::FileMappingState> {
    using T = tinykvm::FileMappingState;
    static constexpr auto all() {
        return std::tuple{Field{"begin", &T::begin}, Field{"handle", &T::handle}, Field{"offset", &T::offset},
                          Field{"size", &T::size}, Field{"mtime_ns", &T::mtime_ns}};
    }
};

template <>
struct Fields<tinykvm::ProgramState> {
    using T = tinykvm::ProgramState;
    static constexpr auto all() {
        return std::tuple{Field{"path", &T::path}, Field{"args", &T::args}, Field{"env_names", &T::env_names},
                          Field{"cwd", &T::cwd}};
    }
};

template <>
struct Fields<tinykvm::MachineState> {
    using T = tinykvm::MachineState;
    static constexpr auto all() {
        return std::tuple{Field{"guest_abi", &T::guest_abi},
                          Field{"guest_kernel_digest", &T::guest_kernel_digest},
                          Field{"door", &T::entry_mode},
                          Field{"page_table_root", &T::page_table_root},
                          Field{"frames", &T::frames},
                          Field{"free_frames", &T::free_frames},
                          Field{"working_set", &T::working_set},
                          Field{"growth", &T::headroom, true},
                          Field{"regions", &T::regions},
                          Field{"brk_begin", &T::brk_begin},
                          Field{"brk_end", &T::brk_end},
                          Field{"mono_ns", &T::mono_ns},
                          Field{"boot_ns", &T::boot_ns, true},
                          Field{"clock_continues", &T::clock_continues, true},
                          Field{"fork", &T::fork, true},
                          Field{"random_at", &T::random_at},
                          Field{"late_env", &T::late_env, true},
                          Field{"entropy", &T::entropy, true},
                          Field{"repeats", &T::repeats, true},
                          Field{"large_pages", &T::large_pages, true},
                          Field{"real_ns", &T::real_ns},
                          Field{"threads", &T::threads},
                          Field{"cpu", &T::cpu},
                          Field{"listeners", &T::listeners},
                          Field{"handles", &T::handles},
                          Field{"file_mappings", &T::file_mappings, true},
                          Field{"program", &T::program},
                          Field{"permissions", &T::permissions},
                          Field{"limits", &T::limits}};
    }
};

} // namespace kvmserver
