#include "tinykvm/elf/vdso/vdso.hpp"

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#include <csignal>
#include <ctime>

#include "tests/catch.hpp"
#include "tests/unit/elf/support.hpp"
#include "tinykvm/abi/guest_kernel.hpp"
#include "tinykvm/abi/layout.hpp"
#include "tinykvm/base/mapping.hpp"
#include "tinykvm/base/unique_fd.hpp"
#include "tinykvm/elf/elf_file.hpp"

using namespace tinykvm;
using namespace elf_test;

// In place of the guest kernel's entry: the host's kernel answers.
extern "C" void test_stub_entry();
asm(R"(
    .pushsection .text
test_stub_entry:
    movq %rcx, test_stub_back(%rip)
    syscall
    jmpq *test_stub_back(%rip)
    .popsection
    .pushsection .bss
test_stub_back: .quad 0
    .popsection
)");

namespace {

constexpr const char* kNames[] = {"__vdso_clock_gettime", "__vdso_gettimeofday", "__vdso_time", "__vdso_clock_getres",
                                  "__vdso_getcpu"};

std::uint64_t tsc() { return __builtin_ia32_rdtsc(); }

// The image, mapped in this process, and its symbols found as the C libraries and Go do.
struct MappedVdso {
    MappedVdso() {
        const auto image = vdso_image();
        code = Mapping::map(8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, "vdso");
        std::memcpy(code.data(), image.data(), image.size());
        REQUIRE(::mprotect(code.data(), code.size(), PROT_READ | PROT_EXEC) == 0);
        const auto* header = at<Elf64_Ehdr>(0);
        const auto* segments = at<Elf64_Phdr>(header->e_phoff);
        for (int i = 0; i < header->e_phnum; ++i)
            if (segments[i].p_type == PT_DYNAMIC)
                for (const auto* d = at<Elf64_Dyn>(segments[i].p_vaddr); d->d_tag != DT_NULL; ++d)
                    switch (d->d_tag) {
                    case DT_STRTAB: strings = at<char>(d->d_un.d_ptr); break;
                    case DT_SYMTAB: symbols = at<Elf64_Sym>(d->d_un.d_ptr); break;
                    case DT_HASH: hash = at<std::uint32_t>(d->d_un.d_ptr); break;
                    case DT_GNU_HASH: gnu_hash = at<std::uint32_t>(d->d_un.d_ptr); break;
                    case DT_VERSYM: versions = at<std::uint16_t>(d->d_un.d_ptr); break;
                    case DT_VERDEF: definitions = at<Elf64_Verdef>(d->d_un.d_ptr); break;
                    case DT_RELA:
                    case DT_REL:
                    case DT_JMPREL:
                    case DT_TEXTREL: relocations = true; break;
                    default: break;
                    }
    }
    template <class T>
    const T* at(std::uint64_t offset) const {
        return reinterpret_cast<const T*>(code.data() + offset);
    }

    // Version LINUX_2.6, by the hash that Go and musl compare.
    bool right_version(std::uint32_t symbol) const {
        for (const Elf64_Verdef* d = definitions;;
             d = reinterpret_cast<const Elf64_Verdef*>(reinterpret_cast<const char*>(d) + d->vd_next)) {
            if (d->vd_ndx == (versions[symbol] & 0x7fff)) {
                const auto* aux = reinterpret_cast<const Elf64_Verdaux*>(reinterpret_cast<const char*>(d) + d->vd_aux);
                return d->vd_hash == 0x3ae75f6 && std::string("LINUX_2.6") == strings + aux->vda_name;
            }
            if (d->vd_next == 0)
                return false;
        }
    }
    std::uint64_t check(std::uint32_t i, const std::string& name) const {
        const bool match = name == strings + symbols[i].st_name && symbols[i].st_shndx != SHN_UNDEF &&
                           ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC && right_version(i);
        return match ? symbols[i].st_value : 0;
    }
    std::uint64_t find_by_hash(const std::string& name) const {
        std::uint32_t h = 0;
        for (const unsigned char c : name) {
            h = (h << 4) + c;
            h = (h ^ ((h & 0xf0000000) >> 24)) & 0x0fffffff;
        }
        for (std::uint32_t i = hash[2 + h % hash[0]]; i != 0; i = hash[2 + hash[0] + i])
            if (const std::uint64_t value = check(i, name))
                return value;
        return 0;
    }
    std::uint64_t find_by_gnu_hash(const std::string& name) const {
        std::uint32_t h = 5381;
        for (const unsigned char c : name)
            h = h * 33 + c;
        const std::uint32_t buckets = gnu_hash[0], first = gnu_hash[1], blooms = gnu_hash[2];
        const std::uint32_t* bucket = gnu_hash + 4 + blooms * 2;
        const std::uint32_t* chain = bucket + buckets;
        for (std::uint32_t i = bucket[h % buckets]; i >= first; ++i) {
            if ((chain[i - first] | 1) == (h | 1))
                if (const std::uint64_t value = check(i, name))
                    return value;
            if (chain[i - first] & 1)
                break;
        }
        return 0;
    }
    template <class F>
    F* function(const char* name) const {
        return reinterpret_cast<F*>(reinterpret_cast<std::uintptr_t>(code.data()) + find_by_hash(name));
    }

    Mapping code;
    const char* strings = nullptr;
    const Elf64_Sym* symbols = nullptr;
    const std::uint32_t* hash = nullptr;
    const std::uint32_t* gnu_hash = nullptr;
    const std::uint16_t* versions = nullptr;
    const Elf64_Verdef* definitions = nullptr;
    bool relocations = false;
};

// The time page at its fixed address, for as long as the object lives; null when something else is there.
struct MappedTime {
    MappedTime() {
        const auto map = [](std::uint64_t address) {
            return ::mmap(reinterpret_cast<void*>(address), 4096, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        };
        void* at = map(layout::kTimePage);
        header = map(layout::kKernelImage);
        if (header != MAP_FAILED)
            static_cast<abi::KernelHeader*>(header)->stub_entry = reinterpret_cast<std::uint64_t>(&test_stub_entry);
        if (at != MAP_FAILED && header != MAP_FAILED)
            page = static_cast<abi::TimePage*>(at);
        else
            WARN("the address of the time page is taken in this process: nothing tested");
    }
    ~MappedTime() {
        if (page)
            ::munmap(page, 4096);
        if (header != MAP_FAILED)
            ::munmap(header, 4096);
    }
    MappedTime(const MappedTime&) = delete;
    MappedTime& operator=(const MappedTime&) = delete;
    abi::TimePage* page = nullptr;
    void* header = nullptr;
};

using ClockGettime = int(int, timespec*);

// Runs code one instruction at a time and writes the time page before one of them, as a host does that
// preempts a machine there. The monotonic clock of that page shows the TSC itself.
struct Stepper {
    static constexpr std::uint64_t kTrapFlag = 0x100; // of RFLAGS
    static inline volatile abi::TimePage* page;
    static inline std::uintptr_t code_begin, code_end;
    static inline int steps, refresh_before;

    static void refresh() {
        const std::uint64_t now = tsc();
        page->mono_base_ns = now;
        page->tsc_base = now;
    }
    static void on_trap(int, siginfo_t*, void* context) {
        greg_t* registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
        const auto rip = static_cast<std::uintptr_t>(registers[REG_RIP]);
        if (rip < code_begin || rip >= code_end)
            return;
        if (steps++ != refresh_before)
            return;
        refresh();
        registers[REG_EFL] &= ~static_cast<greg_t>(kTrapFlag);
    }
    static void start() { __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() | kTrapFlag); }
    static void stop() { __builtin_ia32_writeeflags_u64(__builtin_ia32_readeflags_u64() & ~kTrapFlag); }
};

} // namespace

TEST_CASE("the vDSO is a sound ELF file without relocations") {
    CHECK(vdso_image().size() <= 8192);
    CHECK(reinterpret_cast<std::uintptr_t>(vdso_image().data()) % 4096 == 0);
    const ElfFile elf = parse_elf(vdso_image(), "vdso", ElfUse::library);
    CHECK(elf.type == ElfType::dyn);
    REQUIRE(elf.segments.size() == 1);
    CHECK(elf.segments[0].vaddr == 0);
    CHECK(elf.segments[0].offset == 0);
    CHECK(elf.segments[0].filesz == elf.segments[0].memsz);
    CHECK(elf.segments[0].prot == (PROT_READ | PROT_EXEC));
    CHECK_FALSE(elf.executable_stack);

    const MappedVdso vdso;
    CHECK_FALSE(vdso.relocations);
    REQUIRE(vdso.hash);
    REQUIRE(vdso.gnu_hash);
    REQUIRE(vdso.versions);
    REQUIRE(vdso.definitions);
    for (const char* name : kNames) {
        CHECK(vdso.find_by_hash(name) != 0);
        CHECK(vdso.find_by_hash(name) == vdso.find_by_gnu_hash(name));
    }
    CHECK(vdso.find_by_hash("__vdso_nothing") == 0);
    CHECK(vdso.find_by_gnu_hash("__vdso_nothing") == 0);
}

TEST_CASE("the C library's own loader takes the vDSO") {
    const UniqueFd file(::memfd_create("vdso", MFD_CLOEXEC));
    const auto image = vdso_image();
    REQUIRE(::write(file.get(), image.data(), image.size()) == static_cast<ssize_t>(image.size()));
    void* library = ::dlopen(("/proc/self/fd/" + std::to_string(file.get())).c_str(), RTLD_NOW);
    if (!library)
        FAIL(::dlerror());
    for (const char* name : kNames)
        CHECK(::dlvsym(library, name, "LINUX_2.6") != nullptr);
    ::dlclose(library);
}

TEST_CASE("clocks of the vDSO") {
    const MappedTime time;
    if (!time.page)
        return;
    const MappedVdso vdso;
    const auto clock_gettime = vdso.function<ClockGettime>("__vdso_clock_gettime");
    const auto read = [&](int id) {
        timespec t{};
        REQUIRE(clock_gettime(id, &t) == 0);
        REQUIRE(t.tv_nsec < 1'000'000'000);
        return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(t.tv_nsec);
    };
    constexpr std::uint64_t kMono = 12'999'999'999, kReal = 1'700'000'000'123'456'789, kBoot = 77'000'000'001;

    SECTION("standing still") {
        *time.page = {tsc(), kMono, kReal, kBoot, 0};
        CHECK(read(CLOCK_MONOTONIC) == kMono);
        CHECK(read(CLOCK_MONOTONIC_RAW) == kMono);
        CHECK(read(CLOCK_MONOTONIC_COARSE) == kMono);
        CHECK(read(CLOCK_REALTIME) == kReal);
        CHECK(read(CLOCK_REALTIME_COARSE) == kReal);
        CHECK(read(CLOCK_BOOTTIME) == kBoot);
        timeval tv{};
        struct timezone zone {
            5, 5
        };
        const auto gettimeofday = vdso.function<int(timeval*, struct timezone*)>("__vdso_gettimeofday");
        CHECK(gettimeofday(&tv, &zone) == 0);
        CHECK(tv.tv_sec == 1'700'000'000);
        CHECK(tv.tv_usec == 123'456);
        CHECK(zone.tz_minuteswest == 0);
        CHECK(gettimeofday(nullptr, nullptr) == 0);
        long seconds = 0;
        const auto time_call = vdso.function<long(long*)>("__vdso_time");
        CHECK(time_call(&seconds) == 1'700'000'000);
        CHECK(seconds == 1'700'000'000);
        CHECK(time_call(nullptr) == 1'700'000'000);
    }
    SECTION("a counter behind the page's") {
        *time.page = {tsc() + (1ull << 50), kMono, kReal, kBoot, 1ull << 31};
        CHECK(read(CLOCK_MONOTONIC) == kMono);
    }
    SECTION("running") {
        const std::uint64_t base = tsc() - 1'000'000;
        *time.page = {base, kMono, kReal, kBoot, 1ull << 32}; // one tick is one nanosecond
        std::uint64_t last = 0;
        for (int i = 0; i < 1000; ++i) {
            const std::uint64_t before = tsc() - base;
            const std::uint64_t now = read(CLOCK_MONOTONIC) - kMono;
            REQUIRE(before <= now);
            REQUIRE(now <= tsc() - base);
            REQUIRE(last <= now);
            last = now;
        }
    }
    SECTION("a long time after the page was written") {
        // A tick is 2^20 ns: the product with mult exceeds 64 bits.
        const std::uint64_t base = tsc() - (1u << 20);
        *time.page = {base, kMono, kReal, kBoot, 1ull << 52};
        const std::uint64_t before = (tsc() - base) << 20;
        const std::uint64_t now = read(CLOCK_BOOTTIME) - kBoot;
        CHECK(before <= now);
        CHECK(now <= (tsc() - base) << 20);
    }
    SECTION("as the host's clocks") {
        timespec a{}, b{};
        ::clock_gettime(CLOCK_MONOTONIC, &a);
        const std::uint64_t start = tsc();
        do
            ::clock_gettime(CLOCK_MONOTONIC, &b);
        while ((b.tv_sec - a.tv_sec) * 1'000'000'000 + b.tv_nsec - a.tv_nsec < 20'000'000);
        const std::uint64_t ticks = tsc() - start;
        const auto ns = static_cast<std::uint64_t>((b.tv_sec - a.tv_sec) * 1'000'000'000 + b.tv_nsec - a.tv_nsec);
        const auto mult = static_cast<std::uint64_t>((static_cast<unsigned __int128>(ns) << 32) / ticks);
        const auto mono = static_cast<std::uint64_t>(a.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(a.tv_nsec);
        *time.page = {start, mono, kReal, kBoot, mult};
        const std::uint64_t mine = read(CLOCK_MONOTONIC);
        ::clock_gettime(CLOCK_MONOTONIC, &b);
        const auto theirs =
            static_cast<std::uint64_t>(b.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(b.tv_nsec);
        CHECK(mine < theirs + 1'000'000);
        CHECK(mine + 1'000'000'000 > theirs); // a busy machine may stop us between the two
    }
    SECTION("resolution, CPU and other clocks") {
        const auto getres = vdso.function<ClockGettime>("__vdso_clock_getres");
        timespec t{};
        CHECK(getres(CLOCK_MONOTONIC, &t) == 0);
        CHECK((t.tv_sec == 0 && t.tv_nsec == 1));
        CHECK(getres(CLOCK_REALTIME, nullptr) == 0);
        CHECK(getres(1000, &t) == -EINVAL);
        unsigned cpu = 9, node = 9;
        CHECK(vdso.function<int(unsigned*, unsigned*, void*)>("__vdso_getcpu")(&cpu, &node, nullptr) == 0);
        CHECK((cpu == 0 && node == 0));
        CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
        CHECK((t.tv_sec > 0 || t.tv_nsec > 0));
        CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0);
        CHECK(clock_gettime(1000, &t) == -EINVAL);
        CHECK(clock_gettime(CLOCK_TAI, nullptr) == -EFAULT);
    }
}

TEST_CASE("the time page may change before any instruction of a call") {
    const MappedTime time;
    if (!time.page)
        return;
    const MappedVdso vdso;
    const auto clock_gettime = vdso.function<ClockGettime>("__vdso_clock_gettime");
    *time.page = {0, 0, 0, 0, 1ull << 32};
    Stepper::page = time.page;
    Stepper::code_begin = reinterpret_cast<std::uintptr_t>(vdso.code.data());
    Stepper::code_end = Stepper::code_begin + vdso.code.size();
    struct sigaction action {
    }, before{};
    action.sa_sigaction = Stepper::on_trap;
    action.sa_flags = SA_SIGINFO;
    REQUIRE(::sigaction(SIGTRAP, &action, &before) == 0);
    int wrong = 0;
    for (Stepper::refresh_before = 0;; ++Stepper::refresh_before) {
        Stepper::steps = 0;
        Stepper::refresh();
        timespec t{};
        const std::uint64_t first = tsc();
        Stepper::start();
        clock_gettime(CLOCK_MONOTONIC, &t);
        Stepper::stop();
        const std::uint64_t last = tsc();
        const std::uint64_t now =
            static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(t.tv_nsec);
        wrong += now < first || now > last;
        if (Stepper::steps <= Stepper::refresh_before)
            break;
    }
    ::sigaction(SIGTRAP, &before, nullptr);
    CHECK(wrong == 0);
    CHECK(Stepper::steps > 20); // single stepping works here
}
