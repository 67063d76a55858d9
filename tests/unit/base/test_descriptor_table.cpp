// The room for descriptors that a process asks for before it has threads.
#include "tinykvm/base/descriptor_table.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/catch.hpp"

using namespace tinykvm;

namespace {

// proc_pid_status(5), FDSize: how many descriptors the table has room for.
int room() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with("FDSize:"))
            return std::atoi(line.c_str() + 7);
    return 0;
}

} // namespace

TEST_CASE("descriptors that were reserved have room, and none of them is open") {
    const pid_t child = ::fork(); // what is reserved stays for the life of a process
    REQUIRE(child >= 0);
    if (child == 0) {
        const int before = room();
        reserve_descriptors(1000);
        ::_exit(before < 1000 && room() >= 1000 && ::dup(STDERR_FILENO) < 64 ? 0 : 1);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WEXITSTATUS(status) == 0);
}
