// numpy.random: the module's functions, default_rng() and bit generators that were created without a seed. numpy 1.19
// and newer.
//
// A bit generator keeps the SeedSequence from which it was made, and that keeps the number from which it was made. A
// number from the system has 128 bits and is referenced only there. After np.random.seed() there is no sequence.
#include "src/unique/numpy.hpp"

#include <algorithm>
#include <array>

#include "src/unique/mt19937.hpp"

namespace kvmserver::unique {

using tinykvm::GuestVirt;

namespace {

constexpr const char* kSource = "numpy.random";

// numpy/random/bit_generator.pxd. A Cython object: the fields in the order of their declaration.
struct BitGenerator {
    std::uint64_t references, type;
    std::uint64_t seed_sequence, lock;
    std::uint64_t state; // points to what follows these fields
    std::uint64_t functions[4];
    std::uint64_t ctypes, cffi, capsule, table;
};
constexpr std::uint64_t kBehindGenerator = sizeof(BitGenerator);
static_assert(kBehindGenerator == 104);

struct SeedSequence {
    std::uint64_t references, type, table;
    std::uint64_t entropy, spawn_key;
};

struct Long {
    std::uint64_t references, type;
    std::uint64_t size; // up to Python 3.11: number of 30-bit digits; later: 8 times that
};

bool from_the_system(const MemoryView& memory, const PythonObjects& objects, const SeedSequence& sequence) {
    if (objects.type_of(GuestVirt(sequence.entropy)) != "int" ||
        objects.type_of(GuestVirt(sequence.spawn_key)) != "tuple")
        return false;
    const auto number = memory.value<Long>(GuestVirt(sequence.entropy));
    const auto parents = memory.value<std::uint64_t>(GuestVirt(sequence.spawn_key) + 16);
    // A number of 128 bits: its upper 37 bits are hardly ever zero. A literal in the source would have a second
    // reference, from its code.
    return number && static_cast<std::uint32_t>(number->references) == 1 && parents == 0u &&
           (number->size == 5 || number->size == 4 || number->size == 5 * 8 || number->size == 4 * 8);
}

bool unseeded(const MemoryView& memory, const PythonObjects& objects, GuestVirt object) {
    const auto generator = memory.value<BitGenerator>(object);
    if (!generator || generator->state != object.value + kBehindGenerator)
        return false;
    const GuestVirt at(generator->seed_sequence);
    const auto sequence = memory.value<SeedSequence>(at);
    return sequence && objects.type_of(at).ends_with("SeedSequence") && from_the_system(memory, objects, *sequence);
}

class Adder {
public:
    Adder(const MemoryView& memory, Findings& findings, GuestVirt object)
        : memory_(memory), findings_(findings), object_(object) {}

    void mt19937() {
        const auto state = read_mt(memory_, object_ + kBehindGenerator);
        if (state && seed_of(*state) == MtSeed::unknown)
            findings_.add_random(object_ + kBehindGenerator, sizeof(*state), kSource);
    }
    // Layout: state, increment. A new state is another place in the same stream.
    void pcg64() {
        constexpr std::uint64_t kBytes = 16;
        if (const auto at = inner(0, kBytes)) {
            findings_.add_random(*at, kBytes, kSource);
            no_half(8);
        }
    }
    // Layout: counter, key, and a buffer of results, which is marked as used up.
    void philox() {
        constexpr std::uint64_t kKeyBytes = 16;
        constexpr std::array<std::uint32_t, 1> kUsedUp{4};
        if (const auto key = inner(8, kKeyBytes)) {
            findings_.add_random(*key, kKeyBytes, kSource);
            findings_.add_constant(object_ + kBehindGenerator + 16, std::as_bytes(std::span(kUsedUp)), kSource);
            no_half(56);
        }
    }
    // Layout: three words and a counter.
    void sfc64() {
        findings_.add_random(object_ + kBehindGenerator, 24, kSource);
        no_half(32);
    }

private:
    // The address that a word of the state holds, if it lies in the object.
    std::optional<GuestVirt> inner(std::uint64_t word, std::uint64_t bytes) const {
        constexpr std::uint64_t kMax = 256;
        const auto at = memory_.value<std::uint64_t>(object_ + kBehindGenerator + word);
        return at && *at > object_.value + kBehindGenerator && *at + bytes <= object_.value + kMax
                   ? std::optional(GuestVirt(*at))
                   : std::nullopt;
    }
    // Discards the second half of a 64-bit word that was drawn for a 32-bit number.
    void no_half(std::uint64_t at) {
        constexpr std::array<std::byte, 4> kNone{};
        if (memory_.value<std::uint32_t>(object_ + kBehindGenerator + at) == 1u)
            findings_.add_constant(object_ + kBehindGenerator + at, kNone, kSource);
    }
    const MemoryView& memory_;
    Findings& findings_;
    GuestVirt object_;
};

// Layout of RandomState: PyObject, table, _bit_generator, the five words of its bitgen, a pointer to them, has_gauss.
void add_gauss(const MemoryView& memory, const PythonObjects& objects, GuestVirt object, Findings& findings) {
    constexpr std::uint64_t kGenerator = 24, kStateWords = 32, kPointer = 72, kHasGauss = 80;
    constexpr std::array<std::byte, 4> kNone{};
    const auto generator = memory.value<std::uint64_t>(object + kGenerator);
    const auto pointer = memory.value<std::uint64_t>(object + kPointer);
    if (generator && pointer == object.value + kStateWords && unseeded(memory, objects, GuestVirt(*generator)) &&
        memory.value<std::uint32_t>(object + kHasGauss) == 1u)
        findings.add_constant(object + kHasGauss, kNone, kSource);
}

constexpr std::array<PythonObjects::Wanted, 6> kTypes{{
    {"numpy.random._mt19937.MT19937", kBehindGenerator + sizeof(MtState), 4096},
    {"numpy.random._pcg64.PCG64", kBehindGenerator + 48, 4096},
    {"numpy.random._pcg64.PCG64DXSM", kBehindGenerator + 48, 4096},
    {"numpy.random._philox.Philox", kBehindGenerator + 112, 4096},
    {"numpy.random._sfc64.SFC64", kBehindGenerator + 40, 4096},
    {"numpy.random.mtrand.RandomState", 96, 4096},
}};

} // namespace

std::span<const PythonObjects::Wanted> numpy_types() { return kTypes; }

void add_numpy(const MemoryView& memory, const PythonObjects& objects, GuestVirt object, std::size_t type,
               Findings& findings) {
    if (type == 5)
        return add_gauss(memory, objects, object, findings);
    if (!unseeded(memory, objects, object))
        return;
    Adder adder(memory, findings, object);
    switch (type) {
    case 0: return adder.mt19937();
    case 1:
    case 2: return adder.pcg64();
    case 3: return adder.philox();
    case 4: return adder.sfc64();
    }
}

} // namespace kvmserver::unique
