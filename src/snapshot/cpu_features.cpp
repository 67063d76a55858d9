// Sources: Intel SDM volume 2A, CPUID (tables 3-8, 3-10, 3-11); AMD APM volume 3, appendix E; names of
// Linux's arch/x86/include/asm/cpufeatures.h.
#include "src/snapshot/cpu_features.hpp"

#include <array>

namespace kvmserver {

namespace {

using Leaf = tinykvm::CpuidLeaf;

constexpr std::uint32_t bits(std::initializer_list<std::uint32_t> list) {
    std::uint32_t mask = 0;
    for (const std::uint32_t bit : list)
        mask |= 1u << bit;
    return mask;
}

template <std::size_t n>
constexpr std::uint32_t all_but(const std::array<FeatureBit, n>& features) {
    std::uint32_t mask = ~0u;
    for (const FeatureBit& feature : features)
        mask &= ~(1u << feature.bit);
    return mask;
}

template <std::size_t n>
constexpr std::array<FeatureBit, n> list(const FeatureBit (&features)[n]) {
    return std::to_array(features);
}

constexpr auto k1Ecx = list({{0, "pni"},
                             {1, "pclmulqdq"},
                             {9, "ssse3"},
                             {12, "fma"},
                             {13, "cx16"},
                             {19, "sse4_1"},
                             {20, "sse4_2"},
                             {22, "movbe"},
                             {23, "popcnt"},
                             {25, "aes"},
                             {26, "xsave"},
                             {28, "avx"},
                             {29, "f16c"},
                             {30, "rdrand"}});
constexpr auto k1Edx = list({{0, "fpu"},
                             {4, "tsc"},
                             {8, "cx8"},
                             {15, "cmov"},
                             {19, "clflush"},
                             {23, "mmx"},
                             {24, "fxsr"},
                             {25, "sse"},
                             {26, "sse2"}});
constexpr auto k7Ebx =
    list({{0, "fsgsbase"},  {3, "bmi1"},        {4, "hle"},         {5, "avx2"},      {8, "bmi2"},
          {11, "rtm"},      {14, "mpx"},        {16, "avx512f"},    {17, "avx512dq"}, {18, "rdseed"},
          {19, "adx"},      {21, "avx512ifma"}, {23, "clflushopt"}, {24, "clwb"},     {26, "avx512pf"},
          {27, "avx512er"}, {28, "avx512cd"},   {29, "sha_ni"},     {30, "avx512bw"}, {31, "avx512vl"}});
// tsc_adjust sgx fdp_excptn_only smep erms invpcid pqm zero_fcs_fds rdt_a smap pcommit intel_pt
constexpr std::uint32_t k7EbxIgnored = bits({1, 2, 6, 7, 9, 10, 12, 13, 15, 20, 22, 25});
constexpr auto k7Ecx = list({{1, "avx512vbmi"},
                             {3, "pku"},
                             {5, "waitpkg"},
                             {6, "avx512_vbmi2"},
                             {7, "shstk"},
                             {8, "gfni"},
                             {9, "vaes"},
                             {10, "vpclmulqdq"},
                             {11, "avx512_vnni"},
                             {12, "avx512_bitalg"},
                             {14, "avx512_vpopcntdq"},
                             {22, "rdpid"},
                             {23, "kl"},
                             {27, "movdiri"},
                             {28, "movdir64b"},
                             {29, "enqcmd"}});
// prefetchwt1 umip ospke tme la57 mawau(5) bus_lock_detect cldemote sgx_lc pks
constexpr std::uint32_t k7EcxIgnored = bits({0, 2, 4, 13, 16, 17, 18, 19, 20, 21, 24, 25, 30, 31});
constexpr auto k7Edx = list({{2, "avx512_4vnniw"},
                             {3, "avx512_4fmaps"},
                             {5, "uintr"},
                             {8, "avx512_vp2intersect"},
                             {14, "serialize"},
                             {16, "tsxldtrk"},
                             {20, "ibt"},
                             {22, "amx_bf16"},
                             {23, "avx512_fp16"},
                             {24, "amx_tile"},
                             {25, "amx_int8"}});
// sgx_keys fsrm srbds_ctrl md_clear rtm_always_abort tsx_force_abort hybrid pconfig arch_lbr spec_ctrl stibp
// flush_l1d arch_capabilities core_capabilities ssbd
constexpr std::uint32_t k7EdxIgnored = bits({1, 4, 9, 10, 11, 13, 15, 18, 19, 26, 27, 28, 29, 30, 31});
constexpr auto k71Eax = list({{0, "sha512"},
                              {1, "sm3"},
                              {2, "sm4"},
                              {3, "rao_int"},
                              {4, "avx_vnni"},
                              {5, "avx512_bf16"},
                              {7, "cmpccxadd"},
                              {21, "amx_fp16"},
                              {23, "avx_ifma"}});
// lass archperfmon fzrm fsrs fsrc fred lkgs wrmsrns nmi_src hreset lam msrlist
constexpr std::uint32_t k71EaxIgnored = bits({6, 8, 10, 11, 12, 17, 18, 19, 20, 22, 26, 27});
constexpr auto k71Edx = list({{4, "avx_vnni_int8"},
                              {5, "avx_ne_convert"},
                              {8, "amx_complex"},
                              {10, "avx_vnni_int16"},
                              {13, "utmr"},
                              {19, "avx10"},
                              {21, "apx_f"}});
// prefetchi uiret_uif cet_sss
constexpr std::uint32_t k71EdxIgnored = bits({14, 17, 18});
constexpr auto kd1Eax = list({{0, "xsaveopt"}, {1, "xsavec"}, {2, "xgetbv1"}});
constexpr auto kExtEcx = list({{0, "lahf_lm"},
                               {5, "abm"},
                               {6, "sse4a"},
                               {7, "misalignsse"},
                               {11, "xop"},
                               {15, "lwp"},
                               {16, "fma4"},
                               {21, "tbm"},
                               {29, "mwaitx"}});
constexpr auto kExtEdx = list({{22, "mmxext"}, {27, "rdtscp"}, {30, "3dnowext"}, {31, "3dnow"}});

constexpr FeatureRegister kRegisters[] = {
    {1, 0, &Leaf::ecx, "ecx", k1Ecx, all_but(k1Ecx)},
    {1, 0, &Leaf::edx, "edx", k1Edx, all_but(k1Edx)},
    {7, 0, &Leaf::ebx, "ebx", k7Ebx, k7EbxIgnored},
    {7, 0, &Leaf::ecx, "ecx", k7Ecx, k7EcxIgnored},
    {7, 0, &Leaf::edx, "edx", k7Edx, k7EdxIgnored},
    {7, 1, &Leaf::eax, "eax", k71Eax, k71EaxIgnored},
    {7, 1, &Leaf::edx, "edx", k71Edx, k71EdxIgnored},
    {0xd, 1, &Leaf::eax, "eax", kd1Eax, all_but(kd1Eax)},
    {0x80000001, 0, &Leaf::ecx, "ecx", kExtEcx, all_but(kExtEcx)},
    {0x80000001, 0, &Leaf::edx, "edx", kExtEdx, all_but(kExtEdx)},
};

} // namespace

std::span<const FeatureRegister> feature_registers() { return kRegisters; }

const char* state_name(unsigned bit) {
    switch (bit) {
    case 2: return "avx";
    case 3:
    case 4: return "mpx";
    case 5:
    case 6:
    case 7: return "avx-512";
    case 9: return "pkru";
    case 17:
    case 18: return "amx";
    case 19: return "apx";
    default: return "unknown vector";
    }
}

} // namespace kvmserver
