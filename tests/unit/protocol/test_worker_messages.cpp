// What arrives over a socket between the daemon and a function's process, and what is refused.
#include "tests/catch.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <vector>

#include "src/protocol/worker_messages.hpp"

using namespace kvmserver::protocol;
using tinykvm::UniqueFd;

namespace {

std::ptrdiff_t open_descriptors() { return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}); }

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

TEST_CASE("a message without bytes is the end, and its descriptor does not stay open") {
    const auto [ours, theirs] = make_pair();
    const UniqueFd file = some_file();
    send_raw(ours.get(), {}, {file.get()});
    const auto before = open_descriptors();
    CHECK_FALSE(receive(theirs.get(), Wait::yes));
    CHECK(open_descriptors() == before);
}

TEST_CASE("files arrive in their order, as many as Linux takes in one message") {
    const auto [ours, theirs] = make_pair();
    const std::size_t count = GENERATE(std::size_t{1}, std::size_t{2}, kMaxFiles);
    const auto before = open_descriptors();
    {
        std::vector<UniqueFd> files;
        std::vector<int> numbers;
        for (std::size_t i = 0; i < count; ++i) {
            int pipe[2];
            REQUIRE(::pipe2(pipe, O_CLOEXEC) == 0);
            const UniqueFd writer(pipe[1]);
            const auto byte = static_cast<unsigned char>(i);
            REQUIRE(::write(writer.get(), &byte, 1) == 1);
            numbers.push_back(files.emplace_back(pipe[0]).get());
        }
        Message message;
        message.kind = Kind::pieces;
        message.left = 5;
        REQUIRE(send_files(ours.get(), message, numbers));
        files.clear();
        const auto received = receive_files(theirs.get());
        REQUIRE(received);
        CHECK(received->message.left == 5);
        CHECK_FALSE(received->lost);
        REQUIRE(received->files.size() == count);
        for (std::size_t i = 0; i < count; ++i) {
            unsigned char byte = 0;
            CHECK((::read(received->files[i].get(), &byte, 1) == 1 && byte == static_cast<unsigned char>(i)));
        }
    }
    CHECK(open_descriptors() == before);
    CHECK_FALSE(send_files(ours.get(), Message{}, std::vector<int>(kMaxFiles + 1, ours.get())));
}

TEST_CASE("files for which this process has no room are told, and those that arrived are closed") {
    const auto [ours, theirs] = make_pair();
    const UniqueFd file = some_file();
    const auto before = open_descriptors();
    REQUIRE(send_files(ours.get(), Message{}, std::vector<int>(20, file.get())));
    rlimit usual{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &usual) == 0);
    const int next = ::dup(file.get()); // the lowest number that is free
    REQUIRE(next >= 0);
    ::close(next);
    const rlimit few{static_cast<rlim_t>(next) + 10, usual.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    {
        const auto received = receive_files(theirs.get());
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &usual) == 0);
        REQUIRE(received);
        CHECK(received->lost);
        CHECK(received->files.size() < 20);
    }
    CHECK(open_descriptors() == before);
}

TEST_CASE("an empty message is the end, and its descriptors do not stay open") {
    const auto [ours, theirs] = make_pair();
    const UniqueFd file = some_file();
    send_raw(ours.get(), {}, {file.get()});
    send_raw(ours.get(), {}, {file.get(), file.get()});
    const auto before = open_descriptors();
    CHECK_FALSE(receive(theirs.get(), Wait::yes));
    CHECK_FALSE(receive_files(theirs.get()));
    CHECK(open_descriptors() == before);
}
