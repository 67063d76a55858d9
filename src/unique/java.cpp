// Java on HotSpot: generators of the class library that no program can have seeded. A program's `new Random(42)` is
// another object and is not touched.
#include <array>

#include "src/unique/finder.hpp"
#include "src/unique/hotspot.hpp"

namespace kvmserver::unique {

using tinykvm::GuestVirt;

namespace {

struct Static {
    const char *klass, *field;
};

// java.util.Random objects that belong to the library.
constexpr std::array<Static, 3> kRandoms{{
    {"java/lang/Math$RandomNumberGeneratorHolder", "randomNumberGenerator"},
    {"java/lang/StrictMath$RandomNumberGeneratorHolder", "randomNumberGenerator"},
    {"java/util/Collections", "r"}, // shuffle
}};

// AtomicLongs from which new generators are seeded.
constexpr std::array<Static, 11> kSeeds{{
    {"java/util/Random", "seedUniquifier"},
    {"java/util/concurrent/ThreadLocalRandom", "seeder"},
    {"java/util/SplittableRandom", "defaultGen"},
    {"jdk/random/L32X64MixRandom", "defaultGen"},
    {"jdk/random/L64X128MixRandom", "defaultGen"},
    {"jdk/random/L64X128StarStarRandom", "defaultGen"},
    {"jdk/random/L64X256MixRandom", "defaultGen"},
    {"jdk/random/L64X1024MixRandom", "defaultGen"},
    {"jdk/random/L128X128MixRandom", "defaultGen"},
    {"jdk/random/Xoroshiro128PlusPlus", "defaultGen"},
    {"jdk/random/Xoshiro256PlusPlus", "defaultGen"},
}};

constexpr const char* kAtomicLong = "java/util/concurrent/atomic/AtomicLong";
constexpr const char* kAtomicLongType = "Ljava/util/concurrent/atomic/AtomicLong;";

class Java {
public:
    Java(const MemoryView& memory, Findings& findings) : memory_(memory), findings_(findings), vm_(memory) {}

    void find() {
        if (!vm_.present())
            return;
        for (const auto& [klass, field] : kRandoms)
            if (const auto random =
                    vm_.object_in(vm_.static_field(klass, field, "Ljava/util/Random;"), "java/util/Random"))
                add_atomic(vm_.field(*random, "java/util/Random", "seed", kAtomicLongType),
                           "Java Math.random, shuffle");
        for (const auto& [klass, field] : kSeeds)
            add_atomic(vm_.static_field(klass, field, kAtomicLongType), "Java seed of new generators");
        for (const GuestVirt thread : vm_.threads())
            add_thread(thread);
        for (const char* klass : {"sun/security/provider/NativePRNG", "sun/security/provider/NativePRNG$NonBlocking",
                                  "sun/security/provider/NativePRNG$Blocking"})
            add_secure(klass);
    }

private:
    void add_atomic(std::optional<GuestVirt> field, const char* source) {
        if (const auto atomic = vm_.object_in(field, kAtomicLong))
            if (const auto value = vm_.field(*atomic, kAtomicLong, "value", "J"))
                findings_.add_random(*value, sizeof(std::uint64_t), source);
    }

    void add_thread(GuestVirt thread) {
        const auto probe = vm_.field(thread, "java/lang/Thread", "threadLocalRandomProbe", "I");
        const auto seed = vm_.field(thread, "java/lang/Thread", "threadLocalRandomSeed", "J");
        // otherwise the thread has no seed yet
        if (probe && seed && memory_.value<std::uint32_t>(*probe).value_or(0) != 0)
            findings_.add_random(*seed, sizeof(std::uint64_t), "Java ThreadLocalRandom");
    }

    // The default SecureRandom on Linux: marks the buffer that it read from /dev/urandom as used up, even if it was
    // read a moment ago.
    void add_secure(const char* klass) {
        constexpr const char *kReader = "sun/security/provider/NativePRNG$RandomIO",
                             *kType = "Lsun/security/provider/NativePRNG$RandomIO;";
        constexpr std::array<std::byte, 4> kNone{};
        if (const auto reader = vm_.object_in(vm_.static_field(klass, "INSTANCE", kType), kReader))
            if (const auto left = vm_.field(*reader, kReader, "buffered", "I");
                left && memory_.value<std::uint32_t>(*left) != 0u)
                findings_.add_constant(*left, kNone, "Java SecureRandom");
    }

    const MemoryView& memory_;
    Findings& findings_;
    HotSpot vm_;
};

} // namespace

void find_java(const MemoryView& memory, Findings& findings) {
    if (memory.file_named("libjvm.so"))
        Java(memory, findings).find();
}

} // namespace kvmserver::unique
