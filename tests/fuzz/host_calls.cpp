// libFuzzer: host calls of two machines that began with the same handles, on the same files. No answer is
// anything but a value or an errno, nothing outside of what is permitted is opened, read-only files stay as
// they are, a reset shows what was there before, and no descriptor is kept.
//
// Input: calls, one after the other: the machine, the row of the table, and for each argument what it is.
#include <vector>

#include "tests/fuzz/host_arguments.hpp"

using namespace fuzz;

namespace {

std::string name_of(int fd) {
    std::string name(4096, '\0');
    const ssize_t n = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), name.data(), name.size());
    name.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return name;
}

// Everything that a machine has is what it may have.
void check_handles(const HandleTable& handles) {
    for (std::int32_t n = 4; n < static_cast<std::int32_t>(kLimit); ++n) {
        const Handle* handle = handles.find(n);
        if (!handle || handle->lost)
            continue;
        const std::string name = name_of(handle->file->fd());
        const auto under = [&](const std::string& folder) { return name.starts_with(place().path() + folder); };
        const int flags = ::fcntl(handle->file->fd(), F_GETFL);
        const bool looks = (flags & O_PATH) != 0, writes = !looks && (flags & O_ACCMODE) != O_RDONLY;
        if (name.starts_with("/memfd:") || name.starts_with("socket:") || name.starts_with("/dev/") ||
            handle->info.kind == HandleKind::stdio)
            continue;
        if (under("/rw"))
            continue;
        if (under("/open"))
            FUZZ_REQUIRE(!writes);
        else
            FUZZ_REQUIRE(looks && place().path().starts_with(name == "/" ? "" : name)); // a folder on the way
    }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const bool ready = (place(), true); // with what it opens
    (void)ready;
    Input in(data, size);
    place().renew();
    const std::size_t before = open_files();
    {
        Player boot(kLimit);
        const auto open = [&](const char* path, int flags) {
            const std::string full = path[0] == '/' && path[1] == 'd' ? path : place().path() + path;
            FUZZ_REQUIRE(boot.call(SYS_openat, {0, boot.text(full), static_cast<std::uint64_t>(flags), 0600,
                                                kData + kPageSize, 0}) >= 4);
        };
        open("/open/file", O_RDONLY);
        open("/rw/old", O_RDWR);
        open("/open", O_RDONLY | O_DIRECTORY);
        open("/dev/zero", O_RDWR);
        FUZZ_REQUIRE(boot.call(SYS_memfd_create, {boot.text("memory"), 0, kData + kPageSize}) == 8);
        boot.call(SYS_pwritev, {8, boot.put(GuestVector{kData, 5000}), 1, 0});
        FUZZ_REQUIRE(boot.call(SYS_socket, {AF_INET, SOCK_DGRAM, 0}) == 9);
        FUZZ_REQUIRE(boot.call(SYS_socket, {AF_UNIX, SOCK_STREAM, 0}) == 10);
        open("/rw/dir", O_PATH | O_DIRECTORY);
        const auto base = boot.handles.freeze();
        Player players[2]{Player(base), Player(base)};
        for (unsigned n = 0; n < 40 && !in.empty(); ++n) {
            Player& player = players[in.byte() % 2];
            const unsigned what = in.byte();
            if (what >= 250) {
                player.handles.reset();
                continue;
            }
            const Shape& shape = kShapes[what % std::size(kShapes)];
            std::array<std::uint64_t, 6> arguments{};
            std::uint64_t counted = 0;
            for (std::size_t i = 0; shape.arguments[i]; ++i)
                arguments[i] = in.byte() % 32 == 0 ? in.take<std::uint64_t>()
                                                   : any_argument(shape.arguments[i], shape.nr, player, in, counted);
            const bool by_handle = shape.arguments[0] == 'h';
            if (by_handle && static_cast<std::uint32_t>(arguments[0]) < 3)
                arguments[0] = 4; // not the fuzzer's own output
            player.call(shape.nr, arguments);
        }
        for (Player& player : players) {
            check_handles(player.handles);
            const auto states = player.handles.states();
            player.handles.reset();
            FUZZ_REQUIRE(player.handles.changed() == 0);
            for (std::int32_t n = 0; n < static_cast<std::int32_t>(kLimit); ++n)
                FUZZ_REQUIRE(player.handles.find(n) == base->find(n));
            // What a snapshot of it would hold can be read again.
            std::vector<std::string> warnings;
            HandleTable::restore(states, *place().policy, kLimit, warnings);
        }
        place().check();
    }
    static unsigned made_once = 0; // descriptors that the process keeps from their first use on: handles.cpp
    const std::size_t after = open_files();
    FUZZ_REQUIRE(after == before || (after > before && ++made_once <= 4));
    return 0;
}
