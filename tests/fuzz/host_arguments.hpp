// Host calls for the fuzzer: a place on the host, a machine's side of a call, and what each of its arguments
// is.
#pragma once
#include <fcntl.h>
#include <linux/falloc.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>

#include "tests/fuzz/support.hpp"
#include "tests/fuzz/temp_folder.hpp"
#include "tests/unit/linux/fake_memory.hpp"
#include "tinykvm/abi/guest_kernel.hpp"
#include "tinykvm/linux/call.hpp"
#include "tinykvm/linux/handles.hpp"
#include "tinykvm/linux/policy.hpp"

namespace fuzz {

using namespace tinykvm;
namespace fs = std::filesystem;

inline constexpr std::uint64_t kText = 0x10000, kData = 0x100000, kDataPages = 24, kReadOnly = 0x300000,
                               kHole = 0x400000;
inline constexpr std::uint32_t kLimit = 24; // handles

inline std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}
inline void write_file(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
}

inline std::size_t open_files() {
    const auto all = fs::directory_iterator("/proc/self/fd");
    return static_cast<std::size_t>(std::distance(fs::begin(all), fs::end(all)));
}

// open/ may be read, rw/ written to, secret/ neither.
struct Place {
    TempFolder folder{"host_calls"};
    bool walled = wall_off();
    std::optional<Policy> policy;

    Place() {
        folder.mount_memory();
        fs::create_directories(path() + "/open/sub");
        fs::create_directories(path() + "/secret");
        write_file(path() + "/open/file", "hello world");
        write_file(path() + "/open/sub/inner", "inner");
        write_file(path() + "/secret/key", "SECRET");
        fs::create_symlink("file", path() + "/open/link");
        fs::create_symlink("../secret/key", path() + "/open/out");
        fs::create_symlink("loop", path() + "/open/loop");
        ::mkfifo((path() + "/open/fifo").c_str(), 0600);
        renew();
        Permissions permissions;
        permissions.read = {path() + "/open"};
        permissions.write = {path() + "/rw"};
        if (walled) {
            permissions.connect = {{"127.0.0.1", 0}};
            permissions.listen = {{"127.0.0.1", 0}, {"unix:" + path() + "/rw", 0}};
        }
        ProgramFacts facts;
        facts.cwd = path() + "/open";
        facts.program = path() + "/open/file";
        facts.arguments = {"file"};
        policy.emplace(permissions, facts);
    }
    const std::string& path() const { return folder.path(); }
    void renew() {
        fs::remove_all(path() + "/rw");
        fs::create_directories(path() + "/rw/dir");
        write_file(path() + "/rw/old", std::string(10000, 'o'));
        fs::create_symlink("../secret", path() + "/rw/outdir");
    }
    void check() const {
        FUZZ_REQUIRE(read_file(path() + "/secret/key") == "SECRET");
        FUZZ_REQUIRE(read_file(path() + "/open/file") == "hello world");
        FUZZ_REQUIRE(read_file(path() + "/open/sub/inner") == "inner");
        for (const auto& [name, most] :
             {std::pair{"", 3}, std::pair{"/open", 6}, std::pair{"/open/sub", 1}, std::pair{"/secret", 1}})
            FUZZ_REQUIRE(std::distance(fs::directory_iterator(path() + name), fs::directory_iterator()) <= most);
    }
};

inline Place& place() {
    static Place all;
    return all;
}

struct GuestVector {
    std::uint64_t base, length;
};

class Player {
public:
    explicit Player(std::uint32_t limit) : handles(*place().policy, limit) { map(); }
    explicit Player(std::shared_ptr<const HandleBase> base) : handles(std::move(base), kLimit) {
        map();
        handles.set_memfd_limit(16 << 20);
    }

    std::int64_t call(std::uint32_t nr, const std::array<std::uint64_t, 6>& arguments) {
        const CallRow* row = find_call(nr);
        CallContext context{
            .memory = memory, .handles = handles, .policy = *place().policy, .explain = [](const std::string&) {}};
        context.self.pid = 77;
        context.self.maps = [] { return std::string("555555554000-555555555000 r-xp 00000000 00:00 0\n"); };
        const std::int64_t result = row->handler(context, CallArgs{nr, arguments});
        FUZZ_REQUIRE(result >= 0 || result > -4096);
        FUZZ_REQUIRE((result == -kOwnPath) == !context.own_path.empty());
        return result;
    }
    std::uint64_t text(const std::string& value) {
        const std::uint64_t at = kText + texts_++ % 4 * 8192;
        memory.write(GuestVirt(at), std::as_bytes(std::span(value.c_str(), value.size() + 1)));
        return at;
    }
    template <class T>
    std::uint64_t put(const T& value) {
        puts_ = (puts_ + 256) % 4096;
        memory.store(GuestVirt(kData + puts_), value);
        return kData + puts_;
    }

    tinykvm::test::FakeMemory memory;
    HandleTable handles;

private:
    void map() {
        memory.map(kText, 32 << 10);
        memory.map(kData, kDataPages * kPageSize);
        memory.map(kReadOnly, kPageSize, false);
    }
    std::uint64_t texts_ = 0, puts_ = 0;
};

inline std::string any_path(Input& in) {
    static constexpr const char* kNames[] = {"file",   "sub", "inner", "link", "out", "loop", "old", "dir",
                                             "outdir", "a",   "b",     "..",   ".",   "fifo", "key", "secret"};
    static constexpr const char* kRoots[] = {"", "", "/open/", "/rw/", "/rw/", "/rw/dir/", "/secret/", "/"};
    static constexpr const char* kSpecial[] = {"",
                                               "/",
                                               "/proc/self/fd/0",
                                               "/proc/self/maps",
                                               "/proc/self/status",
                                               "/proc/meminfo",
                                               "/dev/null",
                                               "/dev/zero",
                                               "/dev/urandom",
                                               "/tmp/x",
                                               "/dev/shm/x",
                                               "/etc/passwd",
                                               "/dev/stdin",
                                               "/proc/self/exe",
                                               "/proc/self/cwd/file",
                                               "/sys/x"};
    const unsigned how = in.byte();
    if (how >= 224)
        return in.one_of(kSpecial);
    std::string path = kRoots[how % 8];
    if (path.starts_with("/"))
        path = place().path() + path;
    path += in.one_of(kNames);
    if (how & 8)
        path += std::string("/") + in.one_of(kNames);
    if ((how & 0xf0) == 0xd0)
        path += std::string(in.byte() * 32u, 'x'); // too long
    return path;
}

inline std::uint64_t any_place_in_memory(Input& in) {
    static constexpr std::uint64_t kPlaces[] = {kData + kPageSize,
                                                kData + 8 * kPageSize,
                                                kData + kDataPages * kPageSize - 8,
                                                kReadOnly,
                                                kHole,
                                                kReadOnly + kPageSize - 4,
                                                0,
                                                ~0ull - 7};
    const std::uint64_t at = kPlaces[in.byte() % 16 < 12 ? 0 : in.below(std::size(kPlaces))];
    return at + in.byte() * 16;
}

inline std::uint64_t any_size(Input& in) {
    static constexpr std::uint64_t kSizes[] = {
        0, 1, 2, 4, 8, 16, 100, 4095, 4096, 65536, 1 << 20, 0x7ffff000, 0xffffffff, 1ull << 40, 1ull << 62, ~0ull};
    return in.one_of(kSizes);
}

inline std::uint64_t any_vector(Player& player, Input& in, std::uint64_t& count) {
    std::array<GuestVector, 8> items{};
    count = in.below(10);
    for (std::size_t i = 0; i < std::min<std::size_t>(count, items.size()); ++i)
        items[i] = {any_place_in_memory(in), any_size(in)};
    if (count == 9)
        count = any_size(in);
    return player.put(items);
}

inline std::uint64_t any_address(Player& player, Input& in, std::uint64_t& bytes) {
    sockaddr_storage address{};
    switch (in.below(5)) {
    case 0:
    case 1: {
        auto& inet = reinterpret_cast<sockaddr_in&>(address);
        inet.sin_family = AF_INET;
        inet.sin_port = in.byte() % 2 ? htons(static_cast<std::uint16_t>(2000 + in.byte() % 4)) : 0;
        inet.sin_addr.s_addr = htonl(in.byte() % 8 ? INADDR_LOOPBACK : INADDR_ANY);
        bytes = sizeof inet;
        break;
    }
    case 2:
    case 3: {
        auto& local = reinterpret_cast<sockaddr_un&>(address);
        local.sun_family = AF_UNIX;
        const std::string path = any_path(in).substr(0, sizeof local.sun_path);
        std::memcpy(local.sun_path, path.data(), path.size());
        bytes = offsetof(sockaddr_un, sun_path) + path.size() + in.byte() % 2;
        break;
    }
    default: {
        const auto raw = in.bytes(sizeof address);
        if (!raw.empty())
            std::memcpy(&address, raw.data(), raw.size());
        bytes = raw.size();
    }
    }
    if (in.byte() % 16 == 0)
        bytes = any_size(in);
    return player.put(address);
}

inline std::uint64_t any_message(Player& player, Input& in) {
    abi::SocketMessage message{};
    std::uint64_t count = 0, bytes = 0;
    message.iov = any_vector(player, in, count);
    message.iov_count = count;
    if (in.byte() % 2) {
        message.name = any_address(player, in, bytes);
        message.name_bytes = static_cast<std::uint32_t>(bytes);
    }
    message.flags = in.byte() % 4 ? 0 : in.take<std::uint32_t>();
    return player.put(message);
}

// What each argument of a call is, a letter each: h handle, p path, f flags, m mode, b memory, n size, v
// vector and c its count, a address and l its length, g message, o offset, t times, k lock, x anything.
struct Shape {
    std::uint32_t nr;
    const char* arguments;
};
inline constexpr Shape kShapes[] = {
    {SYS_openat, "hpfmbb"},
    {SYS_openat, "hpfm"},
    {SYS_memfd_create, "pfb"},
    {SYS_chdir, "p"},
    {SYS_fchdir, "h"},
    {SYS_getcwd, "bn"},
    {SYS_preadv, "hvco"},
    {SYS_preadv, "hvco"},
    {SYS_pwritev, "hvco"},
    {SYS_pwritev, "hvco"},
    {SYS_ftruncate, "ho"},
    {SYS_truncate, "po"},
    {SYS_fallocate, "hfoo"},
    {SYS_fsync, "h"},
    {SYS_fdatasync, "h"},
    {SYS_syncfs, "h"},
    {SYS_sync, ""},
    {SYS_fadvise64, "hoof"},
    {SYS_readahead, "hon"},
    {SYS_sync_file_range, "hoof"},
    {SYS_lseek, "hof"},
    {SYS_fstat, "hb"},
    {SYS_newfstatat, "hpbf"},
    {SYS_statx, "hpffb"},
    {SYS_statfs, "pb"},
    {SYS_fstatfs, "hb"},
    {SYS_faccessat, "hpm"},
    {SYS_faccessat2, "hpmf"},
    {SYS_readlinkat, "hpbnb"},
    {SYS_getdents64, "hbnob"},
    {SYS_mkdirat, "hpm"},
    {SYS_mknodat, "hpm"},
    {SYS_unlinkat, "hpf"},
    {SYS_renameat, "hphp"},
    {SYS_renameat2, "hphpf"},
    {SYS_linkat, "hphpf"},
    {SYS_symlinkat, "php"},
    {SYS_fchmod, "hm"},
    {SYS_fchmodat, "hpm"},
    {452, "hpmf"},
    {SYS_fchown, "hxx"},
    {SYS_fchownat, "hpxxf"},
    {SYS_utimensat, "hptf"},
    {SYS_getxattr, "ppbn"},
    {SYS_socket, "fff"},
    {SYS_socket, "fff"},
    {SYS_connect, "hal"},
    {SYS_bind, "halm"},
    {SYS_sendmsg, "hg"},
    {SYS_recvmsg, "hg"},
    {SYS_getsockopt, "hffbb"},
    {SYS_setsockopt, "hffbn"},
    {SYS_getsockname, "hbb"},
    {SYS_getpeername, "hbb"},
    {SYS_shutdown, "hf"},
    {SYS_ioctl, "hxb"},
    {SYS_fcntl, "hfk"},
    {SYS_flock, "hf"},
    {SYS_getrandom, "bnf"},
    {abi::kCloseHandle, "h"},
    {abi::kRoute, "bnbnx"},
    {abi::kInterface, "xb"},
};
static_assert(std::size(kShapes) <= 256);

inline std::uint64_t any_flags(std::uint32_t nr, Input& in) {
    static constexpr std::uint32_t kOpen[] = {O_RDONLY,
                                              O_WRONLY,
                                              O_RDWR,
                                              O_RDWR | O_CREAT,
                                              O_RDWR | O_CREAT | O_EXCL,
                                              O_RDWR | O_TRUNC,
                                              O_PATH,
                                              O_PATH | O_NOFOLLOW,
                                              O_RDONLY | O_DIRECTORY,
                                              O_RDWR | O_TMPFILE,
                                              O_RDONLY | O_NOFOLLOW,
                                              O_WRONLY | O_APPEND,
                                              O_RDWR | O_CREAT | O_APPEND};
    static constexpr std::uint32_t kCommands[] = {F_GETFL, F_SETFL, F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW,
                                                  F_GETLK, F_SETLK, F_SETLKW,    F_ADD_SEALS, F_GET_SEALS};
    static constexpr std::uint32_t kSmall[] = {0,
                                               1,
                                               2,
                                               3,
                                               4,
                                               5,
                                               8,
                                               10,
                                               16,
                                               17,
                                               AT_SYMLINK_NOFOLLOW,
                                               AT_REMOVEDIR,
                                               AT_SYMLINK_FOLLOW,
                                               AT_EMPTY_PATH,
                                               LOCK_EX,
                                               LOCK_EX | LOCK_NB,
                                               FALLOC_FL_KEEP_SIZE,
                                               FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                               FALLOC_FL_ZERO_RANGE,
                                               SOL_SOCKET,
                                               IPPROTO_TCP,
                                               IPPROTO_IPV6};
    if (in.byte() % 16 == 0)
        return in.take<std::uint32_t>();
    if (nr == SYS_openat)
        return in.one_of(kOpen);
    if (nr == SYS_fcntl)
        return in.one_of(kCommands);
    return in.one_of(kSmall);
}

inline std::uint64_t any_argument(char what, std::uint32_t nr, Player& player, Input& in, std::uint64_t& counted) {
    switch (what) {
    case 'h': {
        const unsigned n = in.byte();
        if (n >= 240)
            return static_cast<std::uint32_t>(AT_FDCWD);
        return n < 224 ? 3 + n % 12 : n % kLimit < 3 ? 4 : n % kLimit + 4; // not the process's own streams
    }
    case 'p': {
        const unsigned n = in.byte();
        return n >= 250 ? any_place_in_memory(in) : n == 249 ? 0 : player.text(any_path(in));
    }
    case 'f': return any_flags(nr, in);
    case 'm': return in.byte() % 8 ? 0644 + in.byte() : in.take<std::uint32_t>();
    case 'b': return any_place_in_memory(in);
    case 'n': return any_size(in);
    case 'v': return any_vector(player, in, counted);
    case 'a': return any_address(player, in, counted);
    case 'c':
    case 'l': return counted;
    case 'g': return any_message(player, in);
    case 'o': return in.byte() % 4 == 0 ? any_size(in) : in.byte() % 8 == 0 ? ~0ull : in.byte() * 100ull;
    case 't':
        return player.put(std::array<timespec, 2>{
            {{in.byte(), in.take<std::int32_t>()}, {in.byte(), in.byte() % 2 ? UTIME_NOW : UTIME_OMIT}}});
    case 'k': {
        struct flock lock {};
        lock.l_type = static_cast<short>(in.byte() % 3);
        lock.l_start = in.byte();
        lock.l_len = in.byte();
        return in.byte() % 2 ? in.byte() : player.put(lock);
    }
    default: return in.byte() % 2 ? in.take<std::uint64_t>() : in.byte();
    }
}

} // namespace fuzz
