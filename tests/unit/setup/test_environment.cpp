// Which variables a program begins with.
#include "src/setup/environment.hpp"

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/catch.hpp"

using kvmserver::guest_environment;
using kvmserver::Options;

extern char** environ;

namespace {

using Texts = std::vector<std::string>;

// The host's variables are these alone while it lives.
class HostEnvironment {
public:
    explicit HostEnvironment(Texts texts) : texts_(std::move(texts)), before_(environ) {
        for (std::string& text : texts_)
            entries_.push_back(text.data());
        entries_.push_back(nullptr);
        environ = entries_.data();
    }
    ~HostEnvironment() { environ = before_; }
    HostEnvironment(const HostEnvironment&) = delete;
    HostEnvironment& operator=(const HostEnvironment&) = delete;

private:
    Texts texts_;
    std::vector<char*> entries_;
    char** before_;
};

} // namespace

TEST_CASE("the host's variables do not reach a program unless they are allowed") {
    const HostEnvironment host({"HOME=/root", "LC_ALL=C", "LC_TIME=de", "LCX=1", "SECRET=s"});
    Options options;
    CHECK(guest_environment(options).empty());
    options.permissions.env = {"HOME", "LC_*"};
    CHECK(guest_environment(options) == Texts{"HOME=/root", "LC_ALL=C", "LC_TIME=de"});
    options.permissions.all = true;
    CHECK(guest_environment(options).size() == 5);
}

TEST_CASE("--env sets variables instead of the host's, and the last of a name wins") {
    const HostEnvironment host({"A=host", "AB=host"});
    Options options;
    options.permissions.all = true;
    options.env = {"A=1", "NEW=x=y", "A=2", "EMPTY="};
    CHECK(guest_environment(options) == Texts{"AB=host", "NEW=x=y", "A=2", "EMPTY="});
}

TEST_CASE("a variable of --late-env is not also one of the others") {
    const HostEnvironment host({"A=host", "AB=host"});
    Options options;
    options.permissions.all = true;
    options.env = {"B=1"};
    options.late_env = {"A=late", "B=late"};
    CHECK(guest_environment(options) == Texts{"AB=host"});
}
