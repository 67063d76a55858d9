#include "tinykvm/debug/registers.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include <fmt/format.h>

namespace tinykvm::debug {
namespace {

using General = abi::ThreadRegisters;
struct Named {
    const char* name;
    std::size_t at;
};
// In gdb's order (gdb/features/i386/64bit-core.xml).
constexpr Named kGeneral[] = {
    {"rax", offsetof(General, rax)}, {"rbx", offsetof(General, rbx)}, {"rcx", offsetof(General, rcx)},
    {"rdx", offsetof(General, rdx)}, {"rsi", offsetof(General, rsi)}, {"rdi", offsetof(General, rdi)},
    {"rbp", offsetof(General, rbp)}, {"rsp", offsetof(General, rsp)}, {"r8", offsetof(General, r8)},
    {"r9", offsetof(General, r9)},   {"r10", offsetof(General, r10)}, {"r11", offsetof(General, r11)},
    {"r12", offsetof(General, r12)}, {"r13", offsetof(General, r13)}, {"r14", offsetof(General, r14)},
    {"r15", offsetof(General, r15)}, {"rip", offsetof(General, rip)},
};
// What the program sees in CS and SS; DS, ES, FS and GS are null.
constexpr Named kSelectors[] = {{"cs", 0x33}, {"ss", 0x2b}, {"ds", 0}, {"es", 0}, {"fs", 0}, {"gs", 0}};
constexpr const char* kCore = "org.gnu.gdb.i386.core";
constexpr const char* kSseFeature = "org.gnu.gdb.i386.sse";
constexpr const char* kAvxFeature = "org.gnu.gdb.i386.avx";
constexpr const char* kLinux = "org.gnu.gdb.i386.linux";
constexpr const char* kSegments = "org.gnu.gdb.i386.segments";
// In an FXSAVE area (Intel SDM vol. 1, 10.5.1).
constexpr std::size_t kControlWord = 0, kStatusWord = 2, kTagByte = 4, kOpcode = 6, kInstruction = 8, kOperand = 16,
                      kMxcsr = 24, kStack = 32, kXmm = 160;

constexpr const char* kVectorTypes = R"(<vector id="v8bf16" type="bfloat16" count="8"/>
<vector id="v4f" type="ieee_single" count="4"/>
<vector id="v2d" type="ieee_double" count="2"/>
<vector id="v16i8" type="int8" count="16"/>
<vector id="v8i16" type="int16" count="8"/>
<vector id="v4i32" type="int32" count="4"/>
<vector id="v2i64" type="int64" count="2"/>
<union id="vec128">
<field name="v8_bfloat16" type="v8bf16"/><field name="v4_float" type="v4f"/><field name="v2_double" type="v2d"/>
<field name="v16_int8" type="v16i8"/><field name="v8_int16" type="v8i16"/><field name="v4_int32" type="v4i32"/>
<field name="v2_int64" type="v2i64"/><field name="uint128" type="uint128"/>
</union>
)";

// FXSAVE keeps one bit for each register of the stack: not empty. The full tag word has two bits, 11 for empty. The
// other values only tell what the content says too, so valid (00) stands for them.
std::uint16_t full_tags(std::byte present) {
    std::uint16_t tags = 0;
    for (unsigned i = 0; i < 8; ++i)
        if (!(std::to_integer<unsigned>(present) >> i & 1))
            tags = static_cast<std::uint16_t>(tags | 3u << (2 * i));
    return tags;
}
std::byte present_bits(std::uint16_t tags) {
    unsigned present = 0;
    for (unsigned i = 0; i < 8; ++i)
        if ((tags >> (2 * i) & 3) != 3)
            present |= 1u << i;
    return static_cast<std::byte>(present);
}

} // namespace

RegisterMap::RegisterMap(std::uint64_t vector_components) {
    for (const Named& r : kGeneral) {
        const std::string name = r.name;
        add({name,
             name == "rip"                    ? "code_ptr"
             : name == "rsp" || name == "rbp" ? "data_ptr"
                                              : "int64",
             kCore, 8, Place::general, r.at});
    }
    add({"eflags", "int32", kCore, 4, Place::general, offsetof(General, rflags)});
    for (const Named& r : kSelectors)
        add({r.name, "int32", kCore, 4, Place::selector, r.at});
    for (std::size_t i = 0; i < 8; ++i)
        add({fmt::format("st{}", i), "i387_ext", kCore, 10, Place::vector, kStack + 16 * i, 10, 1});
    const auto word = [&](const char* name, std::size_t at, std::size_t width) {
        add({name, "int", kCore, 4, Place::float_part, at, width, 1});
    };
    word("fctrl", kControlWord, 2);
    word("fstat", kStatusWord, 2);
    add({"ftag", "int", kCore, 4, Place::tag_word, kTagByte, 2, 1});
    word("fiseg", kInstruction + 4, 2);
    word("fioff", kInstruction, 4);
    word("foseg", kOperand + 4, 2);
    word("fooff", kOperand, 4);
    word("fop", kOpcode, 2);
    for (std::size_t i = 0; i < 16; ++i)
        add({fmt::format("xmm{}", i), "vec128", kSseFeature, 16, Place::vector, kXmm + 16 * i, 16, kSse});
    add({"mxcsr", "int", kSseFeature, 4, Place::vector, kMxcsr, 4});
    add({"orig_rax", "int", kLinux, 8, Place::general, offsetof(General, orig_rax)});
    add({"fs_base", "int", kSegments, 8, Place::fs_base});
    add({"gs_base", "int", kSegments, 8, Place::gs_base});
    if (vector_components & kAvx)
        for (std::size_t i = 0; i < 16; ++i)
            add({fmt::format("ymm{}h", i), "uint128", kAvxFeature, 16, Place::vector, kAvxAt + 16 * i, 16, kAvx});
}

std::size_t RegisterMap::all_bytes() const {
    std::size_t sum = 0;
    for (const Register& r : registers_)
        sum += r.bytes;
    return sum;
}

std::vector<std::byte> RegisterMap::get(const Registers& from, std::size_t number) const {
    const Register& r = registers_.at(number);
    std::vector<std::byte> out(r.bytes);
    const auto copy = [&](const void* source, std::size_t bytes) {
        std::memcpy(out.data(), source, std::min(bytes, out.size()));
    };
    std::uint64_t in_use = ~std::uint64_t{0};
    if (from.vector.size() > kFxsaveBytes)
        std::memcpy(&in_use, from.vector.data() + kInUseAt, sizeof(in_use));
    const std::size_t width = r.width ? r.width : r.bytes;
    switch (r.place) {
    case Place::general: copy(reinterpret_cast<const std::byte*>(&from.general) + r.at, 8); break;
    case Place::selector: copy(&r.at, sizeof(r.at)); break;
    case Place::fs_base: copy(&from.fs_base, 8); break;
    case Place::gs_base: copy(&from.gs_base, 8); break;
    case Place::vector:
    case Place::float_part:
        if (r.component != 0 && !(in_use & r.component)) { // then it has its initial value
            if (r.place == Place::float_part && r.at == kControlWord) {
                constexpr std::uint16_t kInitial = 0x37f;
                copy(&kInitial, sizeof(kInitial));
            }
        } else if (r.at + width <= from.vector.size()) {
            copy(from.vector.data() + r.at, width);
        }
        break;
    case Place::tag_word: {
        const std::uint16_t tags =
            from.vector.size() > kTagByte && (in_use & 1) ? full_tags(from.vector[kTagByte]) : std::uint16_t{0xffff};
        copy(&tags, sizeof(tags));
        break;
    }
    }
    return out;
}

void RegisterMap::set(Registers& to, std::size_t number, std::span<const std::byte> value) const {
    const Register& r = registers_.at(number);
    if (value.size() != r.bytes)
        return;
    const std::size_t width = r.width ? r.width : r.bytes;
    switch (r.place) {
    case Place::general:
        std::memcpy(reinterpret_cast<std::byte*>(&to.general) + r.at, value.data(), value.size());
        return;
    case Place::selector: return; // cannot be changed
    case Place::fs_base: std::memcpy(&to.fs_base, value.data(), sizeof(to.fs_base)); return;
    case Place::gs_base: std::memcpy(&to.gs_base, value.data(), sizeof(to.gs_base)); return;
    case Place::vector:
    case Place::float_part:
    case Place::tag_word: break;
    }
    if (r.at + width > to.vector.size() || std::ranges::equal(get(to, number), value))
        return;
    if (r.component != 0 && to.vector.size() > kFxsaveBytes) {
        std::uint64_t in_use;
        std::memcpy(&in_use, to.vector.data() + kInUseAt, sizeof(in_use));
        if (!(in_use & r.component)) // the other registers of the component have their initial values
            for (const Register& other : registers_)
                if (other.component == r.component && other.at + other.bytes <= to.vector.size())
                    std::fill_n(to.vector.begin() + static_cast<std::ptrdiff_t>(other.at),
                                other.width ? other.width : other.bytes, std::byte{});
        if (!(in_use & r.component) && r.component == 1) {
            constexpr std::uint16_t kInitial = 0x37f;
            std::memcpy(to.vector.data() + kControlWord, &kInitial, sizeof(kInitial));
        }
        in_use |= r.component;
        std::memcpy(to.vector.data() + kInUseAt, &in_use, sizeof(in_use));
    }
    if (r.place == Place::tag_word) {
        std::uint16_t tags;
        std::memcpy(&tags, value.data(), sizeof(tags));
        to.vector[kTagByte] = present_bits(tags);
        return;
    }
    std::memcpy(to.vector.data() + r.at, value.data(), width);
}

std::string RegisterMap::description() const {
    std::string out = "<?xml version=\"1.0\"?>\n<!DOCTYPE target SYSTEM \"gdb-target.dtd\">\n<target>\n"
                      "<architecture>i386:x86-64</architecture>\n<osabi>GNU/Linux</osabi>\n";
    std::string feature;
    for (const Register& r : registers_) {
        if (r.feature != feature) {
            out += (feature.empty() ? "" : "</feature>\n") + fmt::format("<feature name=\"{}\">\n", r.feature);
            feature = r.feature;
            if (feature == kSseFeature)
                out += kVectorTypes;
        }
        out += fmt::format("<reg name=\"{}\" bitsize=\"{}\" type=\"{}\"/>\n", r.name, r.bytes * 8, r.type);
    }
    return out + "</feature>\n</target>\n";
}

} // namespace tinykvm::debug
