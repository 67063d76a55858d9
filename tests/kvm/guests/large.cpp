// A server with 6 MiB of constants, each page with its number at its beginning.
//   request: u32 what to do; reply: u64 sum of what it sees at the beginnings, u64 how the deed went
#include <arpa/inet.h>
#include <csetjmp>
#include <csignal>
#include <cstring>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

using u64 = unsigned long;

enum Deed { kLook, kAlter, kUnmap, kReplace, kForget, kMove, kFault, kHide, kHostReads, kTwice, kDeeds };

constexpr u64 kPage = 4096, kPages = 1536, kLarge = 2 << 20;
asm(R"(
.section .rodata
.balign 0x200000
table:
.set number, 0
.rept 1536
.quad number
.fill 4088, 1, 0x5a
.set number, number + 1
.endr
table_end:
.byte 0
.text
)");
extern "C" unsigned char table[];

static u64 sum(u64 first, u64 pages) {
    u64 all = 0;
    for (u64 page = first; page < first + pages; ++page) {
        u64 number;
        std::memcpy(&number, table + page * kPage, 8);
        all += number;
    }
    return all;
}

static sigjmp_buf out;
static void on_segv(int) { siglongjmp(out, 1); }

static u64 faults(unsigned char* at, bool write) {
    if (sigsetjmp(out, 1))
        return 1;
    if (write)
        *const_cast<volatile unsigned char*>(at) = 1;
    else
        (void)*const_cast<volatile unsigned char*>(at);
    return 0;
}

static u64 perform(unsigned deed, int client) {
    unsigned char* second = table + kLarge;
    unsigned char* inside = second + 7 * kPage;
    switch (deed) {
    case kAlter:
        if (mprotect(inside, kPage, PROT_READ | PROT_WRITE) != 0)
            return 1;
        inside[0] = 0xee;
        return mprotect(inside, kPage, PROT_READ) != 0;
    case kUnmap: // all but the last page
        return munmap(second, kLarge - kPage) != 0 || !faults(inside, false) || faults(second + kLarge - kPage, false);
    case kReplace:
        if (mmap(second, kLarge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != second)
            return 1;
        second[5] = 1;
        return inside[0] != 0;
    case kForget: return madvise(inside, kPage, MADV_WILLNEED) != 0;
    case kMove: {
        void* moved =
            mremap(inside, kPage, kPage, MREMAP_MAYMOVE | MREMAP_FIXED, reinterpret_cast<void*>(0x300000000000));
        u64 number = 0;
        if (moved != MAP_FAILED)
            std::memcpy(&number, moved, 8);
        return moved == MAP_FAILED || !faults(inside, false) ? ~u64{0} : number;
    }
    case kFault: return !faults(inside, true) || !faults(table, true);
    case kHide:
        return mprotect(inside, kPage, PROT_NONE) != 0 || !faults(inside, false) || faults(inside + kPage, false);
    case kHostReads: { // by a system call that the host answers
        u64 number = 0;
        const int file = memfd_create("host's", 0);
        if (write(file, inside, 8) != 8 || pread(file, &number, 8, 0) != 8)
            return ~u64{0};
        close(file);
        return number;
    }
    case kTwice:
        for (int i = 0; i < 3; ++i)
            if (mprotect(inside, kPage, PROT_READ | PROT_WRITE) != 0 || (inside[8] = 1) != 1 ||
                mprotect(inside, kPage, PROT_READ) != 0)
                return 1;
        return 0;
    default: (void)client; return 0;
    }
}

int main() {
    struct sigaction action {};
    action.sa_handler = on_segv;
    action.sa_flags = SA_NODEFER;
    sigaction(SIGSEGV, &action, nullptr);
    if (sum(0, kPages) != kPages * (kPages - 1) / 2)
        return 3;
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(80);
    if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 || listen(listener, 5) != 0)
        return 2;
    for (;;) {
        const int client = accept(listener, nullptr, nullptr);
        unsigned deed = 0;
        if (read(client, &deed, sizeof(deed)) == sizeof(deed)) {
            const u64 how = perform(deed, client);
            // Of the three large pages, and of the second what deeds leave readable.
            const bool gone = deed == kUnmap || deed == kReplace;
            const u64 reply[4] = {sum(0, 512), gone ? 0 : sum(512, 7), sum(1024, 512), how};
            (void)!write(client, reply, sizeof(reply));
        }
        close(client);
    }
}
