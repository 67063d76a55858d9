// What arrives over a socket between the daemon and a function's process, and what is refused.
#include "tests/catch.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <vector>

#include "src/link/machine_link.hpp"

using namespace kvmserver::link;
using tinykvm::UniqueFd;

namespace {

std::ptrdiff_t open_descriptors() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
}

UniqueFd some_file() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

// As somebody else might: any bytes, any number of descriptors.
void send_raw(int socket, const std::vector<std::byte>& bytes, const std::vector<int>& fds) {
    iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))] = {};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (!fds.empty()) {
        header.msg_control = control;
        header.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
        cmsghdr* const rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
        std::memcpy(CMSG_DATA(rights), fds.data(), fds.size() * sizeof(int));
    }
    REQUIRE(::sendmsg(socket, &header, 0) == static_cast<ssize_t>(bytes.size()));
}

} // namespace

TEST_CASE("a message arrives with its descriptor") {
    const auto [ours, theirs] = make_pair();
    const UniqueFd file = some_file();
    Message message;
    message.kind = Kind::request;
    message.exec_us = 7;
    REQUIRE(send(ours.get(), message, file.get()));
    REQUIRE(send(ours.get(), message));
    const auto with = receive(theirs.get(), Wait::yes);
    REQUIRE(with);
    CHECK(with->message.kind == Kind::request);
    CHECK(with->message.exec_us == 7);
    CHECK(with->fd);
    const auto without = receive(theirs.get(), Wait::yes);
    REQUIRE(without);
    CHECK_FALSE(without->fd);
    bool again = false;
    CHECK_FALSE(receive(theirs.get(), Wait::no, &again));
    CHECK(again);
}

TEST_CASE("more descriptors than one are the end, and none of them stays open") {
    const auto [ours, theirs] = make_pair();
    const std::size_t count = GENERATE(2, 3, 8);
    const UniqueFd file = some_file();
    send_raw(ours.get(), std::vector<std::byte>(sizeof(Message)), std::vector<int>(count, file.get()));
    const auto before = open_descriptors();
    bool again = true;
    CHECK_FALSE(receive(theirs.get(), Wait::yes, &again));
    CHECK_FALSE(again);
    CHECK(open_descriptors() == before);
}

TEST_CASE("a message of another length is the end") {
    const auto [ours, theirs] = make_pair();
    const std::size_t bytes = GENERATE(1u, sizeof(Message) - 1, sizeof(Message) + 1);
    send_raw(ours.get(), std::vector<std::byte>(bytes), {});
    CHECK_FALSE(receive(theirs.get(), Wait::yes));
}
