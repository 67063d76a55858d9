#include "tinykvm/debug/core_file.hpp"

#include <elf.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/procfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "tinykvm/base/error.hpp"
#include "tinykvm/base/guest_addr.hpp"

namespace tinykvm::debug {
namespace {

// Pages without content between two that have some: up to so many are a hole of one segment.
constexpr std::uint64_t kMaxHole = 64 * kPageSize;
constexpr std::size_t kMaxSegments = 60000; // below PN_XNUM
constexpr std::size_t kMaxThreads = 1024;
// Where debuggers look for the components of a vector state in NT_X86_XSTATE: the bytes of an XSAVE area that are
// software's (Linux, arch/x86/include/uapi/asm/sigcontext.h and user.h, xstatereg).
constexpr std::size_t kComponentsAt = 464;

struct Segment {
    std::uint64_t begin = 0, end = 0;
    std::uint32_t prot = 0;
    bool content = false;
};

class Notes {
public:
    void add(std::uint32_t type, std::span<const std::byte> content, const char* owner = "CORE") {
        const Elf64_Nhdr head{static_cast<Elf64_Word>(std::strlen(owner) + 1), static_cast<Elf64_Word>(content.size()),
                              type};
        append(std::as_bytes(std::span(&head, 1)));
        append(std::as_bytes(std::span(owner, head.n_namesz)));
        append(content);
    }
    template <class T>
    void add_value(std::uint32_t type, const T& value) {
        add(type, std::as_bytes(std::span(&value, 1)));
    }
    const std::vector<std::byte>& bytes() const { return bytes_; }

private:
    void append(std::span<const std::byte> what) {
        bytes_.insert(bytes_.end(), what.begin(), what.end());
        bytes_.resize((bytes_.size() + 3) & ~std::size_t{3});
    }
    std::vector<std::byte> bytes_;
};

template <std::size_t N>
void put_text(char (&to)[N], const std::string& text) {
    std::memcpy(to, text.data(), std::min(text.size(), N - 1));
}

elf_gregset_t* as_array(user_regs_struct& registers) { return reinterpret_cast<elf_gregset_t*>(&registers); }

void add_thread(Notes& notes, Target& target, const ThreadInfo& thread, const Fault* fault) {
    Registers r;
    if (!target.registers(thread.id, r))
        return;
    user_regs_struct user{};
    static_assert(offsetof(user_regs_struct, cs) == offsetof(abi::ThreadRegisters, rflags));
    std::memcpy(&user, &r.general, offsetof(abi::ThreadRegisters, rflags));
    user.cs = 0x33;
    user.ss = 0x2b;
    user.eflags = r.general.rflags;
    user.rsp = r.general.rsp;
    user.fs_base = r.fs_base;
    user.gs_base = r.gs_base;
    elf_prstatus status{};
    status.pr_pid = static_cast<int>(thread.id);
    status.pr_fpvalid = 1;
    if (fault) {
        status.pr_cursig = static_cast<short>(fault->signal);
        status.pr_info.si_signo = fault->signal;
        status.pr_info.si_code = fault->code;
    }
    std::memcpy(&status.pr_reg, as_array(user), sizeof(user));
    notes.add_value(NT_PRSTATUS, status);
    if (fault) {
        elf_prpsinfo process{};
        process.pr_sname = 'R';
        process.pr_pid = static_cast<int>(target.process());
        const std::string path = target.program();
        put_text(process.pr_fname, path.substr(path.rfind('/') + 1));
        put_text(process.pr_psargs, target.arguments());
        notes.add_value(NT_PRPSINFO, process);
        siginfo_t info{};
        info.si_signo = fault->signal;
        info.si_code = fault->code;
        std::memcpy(&info.si_addr, &fault->address, sizeof(info.si_addr));
        notes.add_value(NT_SIGINFO, info);
        notes.add(NT_AUXV, target.auxiliary_vector());
    }
    notes.add(NT_FPREGSET, std::span(r.vector).first(kFxsaveBytes));
    if (const std::uint64_t components = target.vector_components()) {
        std::memcpy(r.vector.data() + kComponentsAt, &components, sizeof(components));
        notes.add(NT_X86_XSTATE, r.vector, "LINUX");
    }
}

// The note's format: count and page size, then (begin, end, offset in pages) of each range, then the paths (Linux,
// fs/binfmt_elf.c, fill_files_note).
void add_files(Notes& notes, const std::vector<MemoryRange>& ranges) {
    std::vector<std::uint64_t> numbers{0, kPageSize};
    std::string paths;
    for (const MemoryRange& range : ranges) {
        if (range.file.empty())
            continue;
        ++numbers[0];
        numbers.insert(numbers.end(), {range.begin, range.end, range.offset / kPageSize});
        paths.append(range.file.c_str(), range.file.size() + 1);
    }
    std::vector<std::byte> content(std::as_bytes(std::span(numbers)).begin(), std::as_bytes(std::span(numbers)).end());
    const auto text = std::as_bytes(std::span(paths));
    content.insert(content.end(), text.begin(), text.end());
    if (numbers[0] != 0)
        notes.add(NT_FILE, content);
}

class Core {
public:
    Core(Target& target, int fd, std::uint64_t max_bytes)
        : target_(target), fd_(fd), left_(max_bytes & ~(kPageSize - 1)) {}

    CoreResult write(const Fault& fault) {
        const std::vector<MemoryRange> ranges = target_.ranges();
        Notes notes;
        bool first = true;
        const std::vector<ThreadInfo> threads = target_.threads();
        for (std::size_t i = 0; i < std::min(threads.size(), kMaxThreads); ++i) {
            add_thread(notes, target_, threads[i], first ? &fault : nullptr);
            first = false;
        }
        add_files(notes, ranges);
        choose(ranges, threads);
        put_headers(notes);
        std::uint64_t at = contents_at_;
        for (const Segment& segment : segments_) {
            if (!segment.content)
                continue;
            put_pages(segment, at);
            at += segment.end - segment.begin;
        }
        if (::ftruncate(fd_, static_cast<off_t>(at)) != 0) // the last pages may be holes
            throw_errno("ftruncate of a core file");
        return result_;
    }

private:
    // Decides which pages are written. If there are more than allowed, ranges with a thread's stack pointer come first.
    void choose(const std::vector<MemoryRange>& ranges, const std::vector<ThreadInfo>& threads) {
        std::vector<std::uint64_t> stacks;
        for (std::size_t i = 0; i < std::min(threads.size(), kMaxThreads); ++i)
            if (Registers r; target_.registers(threads[i].id, r))
                stacks.push_back(r.general.rsp);
        const auto is_stack = [&](const MemoryRange& range) {
            return std::any_of(stacks.begin(), stacks.end(),
                               [&](std::uint64_t sp) { return sp >= range.begin && sp < range.end; });
        };
        for (const bool of_stacks : {true, false})
            for (const MemoryRange& range : ranges)
                if (is_stack(range) == of_stacks)
                    choose_of(range);
        std::sort(segments_.begin(), segments_.end(),
                  [](const Segment& a, const Segment& b) { return a.begin < b.begin; });
    }

    void choose_of(const MemoryRange& range) {
        if (range.prot == 0 || segments_.size() >= kMaxSegments)
            return;
        if (range.as_file) {
            // As Linux does it: the first page of an ELF file, which says which file it was (its build id).
            std::array<std::byte, 4> head;
            const bool elf =
                range.offset == 0 && target_.read(range.begin, head) && std::memcmp(head.data(), ELFMAG, SELFMAG) == 0;
            if (elf)
                add(range, range.begin, range.begin + kPageSize);
            if (const std::uint64_t rest = range.begin + (elf ? kPageSize : 0); rest < range.end)
                segments_.push_back({rest, range.end, range.prot, false});
            return;
        }
        std::uint64_t begin = 0, end = 0;
        target_.for_each_page(range.begin, range.end, [&](std::uint64_t page) {
            if (end != 0 && page - end > kMaxHole) {
                add(range, begin, end);
                end = 0;
            }
            if (end == 0)
                begin = page;
            end = page + kPageSize;
        });
        if (end != 0)
            add(range, begin, end);
    }

    void add(const MemoryRange& range, std::uint64_t begin, std::uint64_t end) {
        const std::uint64_t fits = std::min(end - begin, left_);
        left_ -= fits;
        result_.left_out += end - begin - fits;
        if (fits != 0 && segments_.size() < kMaxSegments)
            segments_.push_back({begin, begin + fits, range.prot, true});
    }

    void put_headers(const Notes& notes) {
        Elf64_Ehdr elf{};
        std::memcpy(elf.e_ident, ELFMAG, SELFMAG);
        elf.e_ident[EI_CLASS] = ELFCLASS64;
        elf.e_ident[EI_DATA] = ELFDATA2LSB;
        elf.e_ident[EI_VERSION] = EV_CURRENT;
        elf.e_type = ET_CORE;
        elf.e_machine = EM_X86_64;
        elf.e_version = EV_CURRENT;
        elf.e_phoff = sizeof(elf);
        elf.e_ehsize = sizeof(elf);
        elf.e_phentsize = sizeof(Elf64_Phdr);
        elf.e_phnum = static_cast<Elf64_Half>(segments_.size() + 1);
        std::vector<Elf64_Phdr> heads(segments_.size() + 1);
        const std::uint64_t notes_at = sizeof(elf) + heads.size() * sizeof(Elf64_Phdr);
        heads[0].p_type = PT_NOTE;
        heads[0].p_offset = notes_at;
        heads[0].p_filesz = notes.bytes().size();
        heads[0].p_align = 4;
        contents_at_ = page_up(notes_at + notes.bytes().size());
        std::uint64_t at = contents_at_;
        for (std::size_t i = 0; i < segments_.size(); ++i) {
            const Segment& s = segments_[i];
            Elf64_Phdr& head = heads[i + 1];
            head.p_type = PT_LOAD;
            head.p_flags =
                (s.prot & PROT_READ ? PF_R : 0u) | (s.prot & PROT_WRITE ? PF_W : 0u) | (s.prot & PROT_EXEC ? PF_X : 0u);
            head.p_vaddr = s.begin;
            head.p_memsz = s.end - s.begin;
            head.p_offset = at;
            head.p_align = kPageSize;
            if (s.content) {
                head.p_filesz = head.p_memsz;
                at += head.p_filesz;
            }
        }
        put(std::as_bytes(std::span(&elf, 1)), 0);
        put(std::as_bytes(std::span(heads)), sizeof(elf));
        put(notes.bytes(), notes_at);
    }

    void put_pages(const Segment& segment, std::uint64_t at) {
        target_.for_each_page(segment.begin, segment.end, [&](std::uint64_t page) {
            std::array<std::byte, kPageSize> content;
            const bool zero = !target_.read(page, content) ||
                              std::all_of(content.begin(), content.end(), [](std::byte b) { return b == std::byte{}; });
            if (zero)
                return;
            put(content, at + (page - segment.begin));
            result_.bytes += kPageSize;
        });
    }

    void put(std::span<const std::byte> bytes, std::uint64_t at) {
        while (!bytes.empty()) {
            const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(at));
            if (n < 0 && errno == EINTR)
                continue;
            if (n <= 0)
                throw_errno("write to a core file");
            bytes = bytes.subspan(static_cast<std::size_t>(n));
            at += static_cast<std::uint64_t>(n);
        }
    }

    Target& target_;
    int fd_;
    std::uint64_t left_, contents_at_ = 0;
    std::vector<Segment> segments_;
    CoreResult result_;
};

} // namespace

CoreResult write_core(Target& target, const Fault& fault, int fd, std::uint64_t max_bytes) {
    return Core(target, fd, max_bytes).write(fault);
}

} // namespace tinykvm::debug
