// CPython: generators of the module `random`, and the PID by which asyncio detects a fork.
//
// Objects are found by their types. No symbols are needed, so it does not matter how the interpreter was linked.
#include "src/unique/finder.hpp"
#include "src/unique/mt19937.hpp"
#include "src/unique/numpy.hpp"
#include "src/unique/python_objects.hpp"
#include "tinykvm/machine/loop_region.hpp"

namespace kvmserver::unique {

using tinykvm::GuestVirt;

namespace {

// Modules/_randommodule.c: PyObject_HEAD; int index; uint32_t state[624].
constexpr std::uint64_t kIndex = 16, kState = 20, kRandomBytes = kState + sizeof(MtState) + 4;
// Modules/_asynciomodule.c before 3.12: PyObject_HEAD; PyObject *rl_loop; pid_t rl_pid.
constexpr std::uint64_t kLoop = 16, kLoopPid = 24, kHolderBytes = 32;

const std::string kLoopSource(tinykvm::kRunningLoopSource);

enum Kind : std::size_t { random_object, loop_holder, numpy_first };

// Adds random._inst and every other random.Random() that was not seeded. CPython reseeds _inst after a fork.
void add_random(const MemoryView& memory, GuestVirt object, Findings& findings) {
    const auto index = memory.value<std::uint32_t>(object + kIndex);
    const auto state = read_mt(memory, object + kState);
    if (index && state && *index <= state->size() && seed_of(*state) == MtSeed::unknown)
        findings.add_random(object + kState, sizeof(*state), "Python random.Random");
}

// False if the object is not a loop holder.
bool add_loop_holder(const MemoryView& memory, const PythonObjects& objects, GuestVirt object, Findings& findings) {
    constexpr std::uint32_t kMaxPid = 1 << 22;
    const auto pid = memory.value<std::uint32_t>(object + kLoopPid);
    const auto loop = memory.value<std::uint64_t>(object + kLoop);
    return pid && *pid != 0 && *pid <= kMaxPid && loop && objects.is_object(GuestVirt(*loop)) &&
           findings.add_pid(object + kLoopPid, kLoopSource);
}

// asyncio is loaded, but no loop has run. This is recorded as a region of kLoopSource with a constant value, the type's
// base pointer, so that filling it changes nothing.
void add_no_loop(const MemoryView& memory, GuestVirt holder_type, Findings& findings) {
    constexpr std::uint64_t kTypeBase = 256; // tp_base, written when the module was loaded
    findings.add_constant(holder_type + kTypeBase, memory.bytes(holder_type + kTypeBase, sizeof(std::uint64_t)),
                          kLoopSource);
}

} // namespace

void find_cpython(const MemoryView& memory, Findings& findings) {
    PythonObjects objects(memory);
    if (!objects.present())
        return;
    std::vector<PythonObjects::Wanted> wanted{{"_random.Random", kRandomBytes, 4096},
                                              {"_RunningLoopHolder", kHolderBytes, kHolderBytes}};
    const auto numpy = numpy_types();
    wanted.insert(wanted.end(), numpy.begin(), numpy.end());
    std::size_t loops = 0;
    const auto all = objects.find(wanted);
    if (all.size() >= PythonObjects::kMax)
        findings.leave_out("there are too many objects of Python to look at");
    for (const auto& found : all) {
        if (found.name == random_object)
            add_random(memory, found.object, findings);
        else if (found.name == loop_holder)
            loops += add_loop_holder(memory, objects, found.object, findings);
        else if (found.name >= numpy_first)
            add_numpy(memory, objects, found.object, found.name - numpy_first, findings);
    }
    if (loops == 0 && !objects.types(loop_holder).empty())
        add_no_loop(memory, objects.types(loop_holder).front(), findings);
}

} // namespace kvmserver::unique
