// A guest without a machine: memory with holes, a folder tree on the host, permissions, handles.
#pragma once
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/linux/fake_memory.hpp"
#include "tinykvm/linux/call.hpp"
#include "tinykvm/linux/handles.hpp"
#include "tinykvm/linux/policy.hpp"

namespace tinykvm::test {

namespace fs = std::filesystem;

class TempFolder {
public:
    TempFolder() {
        std::string name =
            (fs::canonical("/var/tmp") / "kvmserver-linux-XXXXXX") /* not /tmp, which is the machine's own */.string();
        REQUIRE(::mkdtemp(name.data()));
        path = name;
    }
    ~TempFolder() {
        std::error_code ignored;
        fs::remove_all(path, ignored);
    }
    TempFolder(const TempFolder&) = delete;
    TempFolder& operator=(const TempFolder&) = delete;
    std::string operator/(const std::string& rest) const { return path + "/" + rest; }
    std::string path;
};

inline void write_file(const std::string& path, const std::string& text) { std::ofstream(path) << text; }
inline std::string read_file(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}
inline std::size_t open_fds() {
    std::size_t n = 0;
    for ([[maybe_unused]] const auto& entry : fs::directory_iterator("/proc/self/fd"))
        ++n;
    return n;
}

// open/   readable: file.txt "hello world", sub/inner.txt, links
// rw/     writable: old.txt
// secret/ neither:  key
struct World {
    World() : World(Permissions()) {}
    explicit World(Permissions extra, std::uint32_t limit = 64) {
        fs::create_directories(tmp / "open/sub");
        fs::create_directories(tmp / "rw");
        fs::create_directories(tmp / "secret");
        write_file(tmp / "open/file.txt", "hello world");
        write_file(tmp / "open/sub/inner.txt", "inner");
        write_file(tmp / "rw/old.txt", "old");
        write_file(tmp / "secret/key", "SECRET");
        fs::create_symlink("file.txt", tmp / "open/link");
        fs::create_symlink("sub", tmp / "open/linkdir");
        fs::create_symlink("../secret/key", tmp / "open/out");
        fs::create_symlink(tmp / "secret", tmp / "open/outdir");
        fs::create_symlink("loop", tmp / "open/loop");
        fs::create_symlink("nowhere", tmp / "open/dangling");
        extra.read.push_back(tmp / "open");
        extra.write.push_back(tmp / "rw");
        ProgramFacts facts;
        facts.cwd = tmp / "open";
        facts.program = tmp / "open/file.txt";
        facts.arguments = {"file.txt", "-x"};
        facts.cpus = 2;
        policy = std::make_unique<Policy>(std::move(extra), facts);
        handles = std::make_unique<HandleTable>(*policy, limit);
        memory.map(kText, 64 << 10);
        memory.map(kData, 1 << 20);
        memory.map(kReadOnly, kPageSize, false);
    }

    // Runs the handler of a call.
    template <class... Args>
    std::int64_t call(std::uint32_t nr, Args... args) {
        const CallRow* row = find_call(nr);
        REQUIRE(row);
        explained.clear();
        CallContext context{memory, *handles, *policy, [&](const std::string& line) { explained = line; }};
        context.self.pid = 77;
        context.self.maps = [] { return std::string("555555554000-555555555000 r-xp 00000000 00:00 0\n"); };
        context.output = output;
        return row->handler(context, CallArgs{nr, {static_cast<std::uint64_t>(args)...}});
    }

    // Puts text into guest memory; each use of a slot overwrites it.
    std::uint64_t text(const std::string& value, unsigned slot = 0) {
        const std::uint64_t at = kText + slot * 8192;
        REQUIRE(memory.write(GuestVirt(at), std::as_bytes(std::span(value.c_str(), value.size() + 1))));
        return at;
    }
    template <class T>
    std::uint64_t put(const T& value, std::uint64_t offset = 0) {
        REQUIRE(memory.store(GuestVirt(kData + offset), value));
        return kData + offset;
    }
    template <class T>
    T get(std::uint64_t at) {
        const auto value = memory.load<T>(GuestVirt(at));
        REQUIRE(value);
        return *value;
    }
    std::string bytes(std::uint64_t at, std::size_t length) {
        std::string value(length, '\0');
        REQUIRE(memory.read(GuestVirt(at), std::as_writable_bytes(std::span(value))));
        return value;
    }

    std::int64_t open(const std::string& path, int flags, unsigned mode = 0644);
    std::int64_t read(std::int64_t handle, std::size_t length, std::int64_t offset, std::string& out);
    std::int64_t write(std::int64_t handle, const std::string& value, std::int64_t offset);

    static constexpr std::uint64_t kText = 0x10000;
    static constexpr std::uint64_t kData = 0x100000;
    static constexpr std::uint64_t kReadOnly = 0x300000;
    static constexpr std::uint64_t kReply = kData + (1 << 20) - 256;
    static constexpr std::uint64_t kHole = 0x400000;
    static constexpr std::uint64_t kDataEnd = kData + (1 << 20);

    TempFolder tmp;
    FakeMemory memory;
    std::unique_ptr<Policy> policy;
    std::unique_ptr<HandleTable> handles;
    std::string explained;
    const OutputSink* output = nullptr;
};

struct GuestIovec {
    std::uint64_t base, length;
};

inline std::int64_t World::open(const std::string& path, int flags, unsigned mode) {
    return call(SYS_openat, AT_FDCWD, text(path), flags, mode, kReply);
}

inline std::int64_t World::read(std::int64_t handle, std::size_t length, std::int64_t offset, std::string& out) {
    const std::uint64_t iov = put(GuestIovec{kData + kPageSize, length});
    const std::int64_t n = call(SYS_preadv, handle, iov, 1, offset);
    out = n > 0 ? bytes(kData + kPageSize, static_cast<std::size_t>(n)) : "";
    return n;
}

inline std::int64_t World::write(std::int64_t handle, const std::string& value, std::int64_t offset) {
    REQUIRE(memory.write(GuestVirt(kData + kPageSize), std::as_bytes(std::span(value))));
    return call(SYS_pwritev, handle, put(GuestIovec{kData + kPageSize, value.size()}), 1, offset);
}

} // namespace tinykvm::test
