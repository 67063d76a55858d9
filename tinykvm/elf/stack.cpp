#include "tinykvm/elf/stack.hpp"

#include <elf.h>
#include <fmt/format.h>

#include <cstring>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/must_hold.hpp"

// Not in Debian 12's elf.h.
#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif
#ifndef AT_HWCAP2
#define AT_HWCAP2 26
#endif

namespace tinykvm {
namespace {

constexpr std::uint64_t kStackAlign = 16;

// Pushes data downwards from the top of the stack, then writes the vectors of 64-bit words upwards from rsp.
class Builder {
public:
    Builder(std::uint64_t top, std::uint64_t bytes) : bytes_(bytes), top_(top), at_(top) {}

    std::uint64_t push(const void* data, std::size_t n) {
        at_ -= n;
        if (n)
            std::memcpy(&bytes_[offset(at_)], data, n);
        return at_;
    }
    std::uint64_t push(const std::string& text) { return push(text.c_str(), text.size() + 1); }
    // The strings lie in memory in the order of the list.
    std::vector<std::uint64_t> push(const std::vector<std::string>& texts) {
        std::vector<std::uint64_t> at(texts.size());
        for (std::size_t i = texts.size(); i-- > 0;)
            at[i] = push(texts[i]);
        return at;
    }
    void skip(std::uint64_t n) { at_ -= n; }
    void align(std::uint64_t alignment) { at_ &= ~(alignment - 1); }

    void put_words(std::uint64_t at, const std::vector<std::uint64_t>& words) {
        std::memcpy(&bytes_[offset(at)], words.data(), words.size() * sizeof(std::uint64_t));
    }

    std::uint64_t at() const { return at_; }
    std::vector<std::byte> take(std::uint64_t from) {
        bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(offset(from)));
        return std::move(bytes_);
    }

private:
    std::size_t offset(std::uint64_t address) const { return bytes_.size() - (top_ - address); }

    std::vector<std::byte> bytes_;
    std::uint64_t top_;
    std::uint64_t at_;
};

// Total size of the strings with their NULs. Throws UserError for a string that contains a NUL.
std::uint64_t string_bytes(const std::vector<std::string>& texts, const char* what) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < texts.size(); ++i) {
        if (texts[i].find('\0') != std::string::npos)
            throw UserError(ExitCode::usage, fmt::format("{} {} contains a NUL byte", what, i));
        sum += texts[i].size() + 1;
    }
    return sum;
}

std::vector<std::uint64_t> auxiliary_vector(const StackInput& in, std::uint64_t random, std::uint64_t platform,
                                            std::uint64_t execfn) {
    std::vector<std::uint64_t> words;
    const auto add = [&](std::uint64_t type, std::uint64_t value) { words.insert(words.end(), {type, value}); };
    const auto add_if = [&](std::uint64_t type, std::uint64_t value) {
        if (value)
            add(type, value);
    };
    add_if(AT_SYSINFO_EHDR, in.vdso);
    add_if(AT_MINSIGSTKSZ, in.minsigstksz);
    add(AT_HWCAP, in.hwcap);
    add(AT_PAGESZ, kPageSize);
    add(AT_CLKTCK, in.clock_ticks);
    if (in.phdr) {
        add(AT_PHDR, in.phdr);
        add(AT_PHENT, kElfPhent);
        add(AT_PHNUM, in.phnum);
    }
    add(AT_BASE, in.interpreter_base);
    add(AT_FLAGS, 0);
    add(AT_ENTRY, in.entry);
    add(AT_UID, in.uid);
    add(AT_EUID, in.euid);
    add(AT_GID, in.gid);
    add(AT_EGID, in.egid);
    add(AT_SECURE, in.secure);
    add(AT_RANDOM, random);
    add(AT_HWCAP2, in.hwcap2);
    add(AT_EXECFN, execfn);
    add(AT_PLATFORM, platform);
    add(AT_NULL, 0);
    return words;
}

} // namespace

void StackInput::describe(const ElfFile& program, std::uint64_t load_base) {
    phdr = program.phdr ? load_base + program.phdr : 0;
    phnum = program.phnum;
    entry = load_base + program.entry;
}

InitialStack build_stack(const StackInput& input, GuestVirt top, std::uint64_t max_bytes) {
    must_hold(top.value % kStackAlign == 0 && top.value >= max_bytes);
    std::vector<std::string> args = input.args;
    if (args.empty())
        args.emplace_back();

    constexpr std::uint64_t kMaxAuxWords = 64;
    const std::uint64_t words = 1 + args.size() + 1 + input.env.size() + input.late_env.size() + 1 + kMaxAuxWords;
    string_bytes(input.late_env, "environment variable");
    for (const std::string& variable : input.late_env)
        if (variable.size() >= kLateEnvBytes)
            throw UserError(
                ExitCode::usage,
                fmt::format(
                    "the environment variable {} is longer than {} bytes, the most for one that can be changed later",
                    variable.substr(0, variable.find('=')), kLateEnvBytes - 1));
    const std::uint64_t need = string_bytes(args, "argument") + string_bytes(input.env, "environment variable") +
                               string_bytes({input.execfn, input.platform}, "program name") +
                               input.late_env.size() * kLateEnvBytes + input.random.size() +
                               words * sizeof(std::uint64_t) + 4 * kStackAlign;
    if (need > max_bytes)
        throw UserError(ExitCode::usage,
                        fmt::format("arguments and environment need {} bytes of stack but {} is the most; pass fewer "
                                    "or shorter ones",
                                    need, max_bytes));

    Builder build(top.value, need);
    InitialStack stack;
    build.skip(sizeof(std::uint64_t)); // Linux leaves a null word at the very top
    const std::uint64_t execfn = build.push(input.execfn);
    stack.env_end = build.at();
    const std::vector<std::uint64_t> env = build.push(input.env);
    stack.env_begin = stack.args_end = build.at();
    const std::vector<std::uint64_t> argv = build.push(args);
    stack.args_begin = build.at();
    for (std::string variable : input.late_env) {
        variable.resize(kLateEnvBytes);
        stack.late_env.push_back(build.push(variable.data(), variable.size()));
    }
    const std::uint64_t platform = build.push(input.platform);
    build.align(kStackAlign);
    stack.random_at = build.push(input.random.data(), input.random.size());

    std::vector<std::uint64_t> vector = {argv.size()};
    vector.insert(vector.end(), argv.begin(), argv.end());
    vector.push_back(0);
    vector.insert(vector.end(), env.begin(), env.end());
    vector.insert(vector.end(), stack.late_env.begin(), stack.late_env.end());
    vector.push_back(0);
    const std::size_t auxv_at = vector.size();
    const std::vector<std::uint64_t> auxv = auxiliary_vector(input, stack.random_at, platform, execfn);
    must_hold(auxv.size() <= kMaxAuxWords);
    vector.insert(vector.end(), auxv.begin(), auxv.end());

    build.skip(vector.size() * sizeof(std::uint64_t));
    build.align(kStackAlign);
    stack.rsp = build.at();
    build.put_words(stack.rsp, vector);
    stack.auxv_begin = stack.rsp + auxv_at * sizeof(std::uint64_t);
    stack.auxv_end = stack.rsp + vector.size() * sizeof(std::uint64_t);
    stack.bytes = build.take(stack.rsp);
    return stack;
}

} // namespace tinykvm
