#include "tinykvm/elf/elf_file.hpp"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "tinykvm/abi/layout.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/guest_addr.hpp"
#include "tinykvm/base/text.hpp"
#include "tinykvm/elf/elf_names.hpp"

namespace tinykvm {
namespace {

static_assert(kElfPhent == sizeof(Elf64_Phdr));

constexpr std::uint64_t kMaxProgramHeaderBytes = 65536; // Linux: fs/binfmt_elf.c, load_elf_phdrs
constexpr std::uint64_t kMaxAlignment = 1ull << 30;
constexpr std::size_t kMaxInterpreter = 4095;
// Limits for the end of segments: below the stack for fixed addresses; for movable files a size that always finds room.
constexpr std::uint64_t kFixedEnd = layout::kStackTop - layout::kStackBytes;
constexpr std::uint64_t kMovableEnd = layout::kMmapTop - layout::kPieBase;
static_assert(kFixedEnd < layout::kUserMax && kMovableEnd < layout::kUserMax);

class Parser {
public:
    Parser(const ByteSource& source, const std::string& name, ElfUse use) : source_(source), name_(name), use_(use) {}

    ElfFile parse() {
        check_identity();
        read_headers();
        for (std::size_t i = 0; i < headers_.size(); ++i)
            take(headers_[i], i);
        if (file_.segments.empty())
            fail("has no loadable segment: nothing of it can run");
        check_segments();
        file_.low = file_.segments.front().vaddr;
        file_.high = file_.segments.back().end();
        find_program_headers();
        check_entry();
        return std::move(file_);
    }

private:
    template <class... A>
    [[noreturn]] void fail(fmt::format_string<A...> text, A&&... args) const {
        throw UserError(ExitCode::failure, name_ + ": " + fmt::format(text, std::forward<A>(args)...));
    }

    // Checks that this is an ELF file for 64-bit x86 Linux, with an error message for each common mistake.
    void check_identity() {
        if (source_.size() == 0)
            fail("is empty, not an ELF program");
        if (!is_elf(source_)) {
            const auto script = source_.load<std::uint16_t>(0);
            if (script && *script == 0x2123) // "#!"
                fail("is a script, not an ELF program; give its interpreter as the program");
            fail("not an ELF program");
        }
        const auto ident = source_.load<std::array<std::uint8_t, EI_NIDENT + 4>>(0);
        if (!ident)
            fail("truncated: the ELF header ends at byte 64 but the file has {}", source_.size());
        const std::uint8_t data = (*ident)[EI_DATA];
        const bool big = data == ELFDATA2MSB;
        const std::uint8_t* m = &(*ident)[EI_NIDENT + 2];
        const std::string machine =
            elf_machine_name(static_cast<std::uint16_t>(big ? m[0] << 8 | m[1] : m[1] << 8 | m[0]));
        const std::uint8_t bits = (*ident)[EI_CLASS];
        if (bits != ELFCLASS32 && bits != ELFCLASS64)
            fail("not an ELF program (unknown ELF class {})", bits);
        if (data != ELFDATA2LSB && !big)
            fail("not an ELF program (unknown byte order {})", data);
        if (bits == ELFCLASS32)
            fail("is a 32-bit ELF ({}); kvmserver runs 64-bit x86 programs", machine == "x86-64" ? "x32" : machine);
        if (machine != "x86-64")
            fail("is for {}; kvmserver runs 64-bit x86 programs", machine);
        if (big)
            fail("is a big-endian ELF; kvmserver runs 64-bit x86 programs");
        const std::string os = foreign_os_name((*ident)[EI_OSABI]);
        if (!os.empty())
            fail("is for {}; kvmserver runs Linux programs", os);
    }

    void read_headers() {
        const auto header = source_.load<Elf64_Ehdr>(0);
        if (!header)
            fail("truncated: the ELF header ends at byte {} but the file has {}", sizeof(Elf64_Ehdr), source_.size());
        header_ = *header;
        if (header_.e_ident[EI_VERSION] != EV_CURRENT || header_.e_version != EV_CURRENT)
            fail("has an unknown ELF version ({})", header_.e_version);
        switch (header_.e_type) {
        case ET_EXEC: file_.type = ElfType::exec; break;
        case ET_DYN: file_.type = ElfType::dyn; break;
        case ET_REL: fail("is an object file; link it into a program first");
        case ET_CORE: fail("is a core dump, not a program");
        default: fail("has an unknown ELF type ({})", header_.e_type);
        }
        if (header_.e_phnum == 0)
            fail("has no program headers: nothing of it can be loaded");
        if (header_.e_phentsize != sizeof(Elf64_Phdr))
            fail("has program headers of {} bytes instead of {}", header_.e_phentsize, sizeof(Elf64_Phdr));
        const std::uint64_t bytes = std::uint64_t{header_.e_phnum} * sizeof(Elf64_Phdr);
        if (bytes > kMaxProgramHeaderBytes)
            fail("has too many program headers ({}, at most {})", header_.e_phnum,
                 kMaxProgramHeaderBytes / sizeof(Elf64_Phdr));
        headers_.resize(header_.e_phnum);
        if (!source_.read(header_.e_phoff, std::as_writable_bytes(std::span(headers_)))) {
            if (header_.e_phoff > source_.size())
                fail("truncated: the program headers begin at byte {} but the file has {}", header_.e_phoff,
                     source_.size());
            fail("truncated: the program headers end at byte {} but the file has {}", header_.e_phoff + bytes,
                 source_.size());
        }
        file_.phnum = header_.e_phnum;
    }

    void take(const Elf64_Phdr& p, std::size_t index) {
        switch (p.p_type) {
        case PT_LOAD:
            if (p.p_memsz != 0 || p.p_filesz != 0)
                take_segment(p, index);
            break;
        case PT_INTERP:
            // An interpreter's own PT_INTERP is ignored. Of several, the first counts.
            if (use_ == ElfUse::program && file_.interpreter.empty())
                take_interpreter(p);
            break;
        case PT_GNU_STACK: file_.executable_stack = p.p_flags & PF_X; break;
        case PT_DYNAMIC:
            check_in_file(p, "the dynamic section");
            file_.dynamic_offset = p.p_offset;
            file_.dynamic_size = p.p_filesz;
            break;
        default: break;
        }
    }

    void check_in_file(const Elf64_Phdr& p, const std::string& what) const {
        std::uint64_t end = 0;
        if (__builtin_add_overflow(p.p_offset, p.p_filesz, &end))
            fail("is damaged: {} has {} bytes at offset {}", what, p.p_filesz, p.p_offset);
        if (p.p_filesz != 0 && end > source_.size())
            fail("truncated: {} ends at byte {} but the file has {}", what, end, source_.size());
    }

    void take_segment(const Elf64_Phdr& p, std::size_t index) {
        const std::string what = fmt::format("segment {}", index);
        if (p.p_filesz > p.p_memsz)
            fail("is damaged: {} has more bytes in the file ({}) than in memory ({})", what, p.p_filesz, p.p_memsz);
        check_in_file(p, what);
        const bool fixed = file_.type == ElfType::exec;
        const std::uint64_t limit = fixed ? kFixedEnd : kMovableEnd;
        if (p.p_vaddr > limit || p.p_memsz > limit - p.p_vaddr)
            fail("{} at {:#x} with {:#x} bytes does not fit below {:#x}", what, p.p_vaddr, p.p_memsz, limit);
        if (fixed && p.p_vaddr < layout::kUserMin)
            fail("{} at {:#x} is below {:#x}; link the program at a higher address", what, p.p_vaddr, layout::kUserMin);
        if (p.p_align > 1 && !std::has_single_bit(p.p_align))
            fail("is damaged: {} has an alignment of {:#x}, not a power of two", what, p.p_align);
        if (p.p_align > kMaxAlignment)
            fail("{} has an alignment of {:#x}, more than {:#x}", what, p.p_align, kMaxAlignment);
        if (p.p_filesz != 0 && (p.p_vaddr - p.p_offset) % kPageSize != 0)
            fail("{} at {:#x} is not aligned with its file offset {:#x}", what, p.p_vaddr, p.p_offset);
        ElfSegment segment;
        segment.vaddr = p.p_vaddr;
        segment.memsz = p.p_memsz;
        segment.offset = p.p_offset;
        segment.filesz = p.p_filesz;
        segment.prot = (p.p_flags & PF_R ? PROT_READ : 0) | (p.p_flags & PF_W ? PROT_WRITE : 0) |
                       (p.p_flags & PF_X ? PROT_EXEC : 0);
        file_.segments.push_back(segment);
        file_.alignment = std::max({file_.alignment, p.p_align, kPageSize});
    }

    void take_interpreter(const Elf64_Phdr& p) {
        check_in_file(p, "the interpreter's path");
        const auto path = source_.load_string(p.p_offset, p.p_offset + p.p_filesz, kMaxInterpreter);
        if (!path)
            fail("is damaged: its interpreter's path is {}",
                 p.p_filesz > kMaxInterpreter ? "too long" : "not terminated");
        if (path->empty() || path->front() != '/')
            fail("is damaged: its interpreter \"{}\" is not an absolute path", brief(*path));
        file_.interpreter = *path;
    }

    void check_segments() const {
        for (std::size_t i = 1; i < file_.segments.size(); ++i) {
            const ElfSegment& before = file_.segments[i - 1];
            const ElfSegment& here = file_.segments[i];
            if (here.vaddr < before.vaddr)
                fail("is damaged: the segment at {:#x} comes after the one at {:#x}", here.vaddr, before.vaddr);
            if (here.vaddr < before.end())
                fail("is damaged: the segments at {:#x} and {:#x} overlap", before.vaddr, here.vaddr);
        }
    }

    void find_program_headers() {
        const std::uint64_t bytes = headers_.size() * sizeof(Elf64_Phdr);
        for (const ElfSegment& s : file_.segments)
            if (s.offset <= header_.e_phoff && header_.e_phoff - s.offset <= s.filesz &&
                bytes <= s.filesz - (header_.e_phoff - s.offset)) {
                file_.phdr = s.vaddr + (header_.e_phoff - s.offset);
                return;
            }
    }

    void check_entry() {
        if (use_ == ElfUse::library)
            return;
        file_.entry = header_.e_entry;
        if (file_.entry == 0)
            fail("is a shared library, not a program: it has no entry point");
        for (const ElfSegment& s : file_.segments)
            if ((s.prot & PROT_EXEC) && file_.entry >= s.vaddr && file_.entry < s.end())
                return;
        fail("is damaged: its entry point {:#x} is not in an executable segment", file_.entry);
    }

    const ByteSource& source_;
    const std::string& name_;
    const ElfUse use_;
    Elf64_Ehdr header_{};
    std::vector<Elf64_Phdr> headers_;
    ElfFile file_;
};

} // namespace

bool is_elf(const ByteSource& source) {
    const auto magic = source.load<std::array<char, SELFMAG>>(0);
    return magic && std::memcmp(magic->data(), ELFMAG, SELFMAG) == 0;
}

ElfFile parse_elf(const ByteSource& source, const std::string& name, ElfUse use) {
    return Parser(source, name, use).parse();
}

ElfFile parse_elf(std::span<const std::byte> bytes, const std::string& name, ElfUse use) {
    return parse_elf(SpanSource(bytes), name, use);
}

UniqueFd open_program_file(const std::string& path) {
    // O_NONBLOCK: opening a FIFO without a writer must not block.
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    const std::string shown = printable(path, 4096);
    if (!fd) {
        const int error = errno;
        if (error == ENOENT || error == ENOTDIR)
            throw UserError(ExitCode::not_found, shown + ": no such file");
        if (error == EACCES || error == EPERM)
            throw UserError(ExitCode::not_permitted, shown + ": may not be read; see its permissions and its folder's");
        throw UserError(ExitCode::failure, shown + ": " + std::generic_category().message(error));
    }
    struct stat st {};
    if (::fstat(fd.get(), &st) != 0)
        throw_errno("stat " + shown);
    if (S_ISDIR(st.st_mode))
        throw UserError(ExitCode::failure, shown + ": is a folder, not a program");
    if (!S_ISREG(st.st_mode))
        throw UserError(ExitCode::failure, shown + ": is not a regular file");
    return fd;
}

OpenElf open_elf(const std::string& path, ElfUse use) {
    OpenElf open;
    open.fd = open_program_file(path);
    open.elf = parse_elf(FileSource(open.fd.get(), path), printable(path, 4096), use);
    return open;
}

} // namespace tinykvm
