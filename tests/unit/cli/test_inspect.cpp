// inspect on files that are snapshots and on files that are not.
#include <nlohmann/json.hpp>

#include <optional>

#include "src/cli/doctor/host_cpu.hpp"
#include "src/snapshot/writer.hpp"
#include "tests/catch.hpp"
#include "tests/unit/cli/harness.hpp"
#include "tests/unit/cli/matchers.hpp"
#include "tinykvm/abi/guest_kernel.hpp"
#include "tinykvm/base/error.hpp"

using namespace kvmserver;
using namespace kvmserver::cli;

namespace {

Outcome inspect(const std::vector<std::string>& operands) {
    const Command commands[] = {inspect_command()};
    std::vector<std::string> words{"inspect"};
    words.insert(words.end(), operands.begin(), operands.end());
    std::ostringstream out, err;
    Outcome outcome;
    outcome.code = run_cli(commands, words, {.out = out, .err = err, .folder = "/"});
    outcome.out = out.str();
    outcome.err = err.str();
    return outcome;
}

// Without KVM there is no knowing what a machine would see.
std::optional<tinykvm::CpuState> cpu_if_any() {
    try {
        return host_cpu();
    } catch (const tinykvm::UserError&) {
        return std::nullopt;
    }
}

void write_sample(const std::string& path, std::uint32_t abi) {
    constexpr std::uint32_t kFrames = 16;
    tinykvm::MachineState state;
    state.guest_abi = abi;
    state.frames = kFrames;
    state.program = {.path = "/bin/hello", .args = {"hello", "--port", "1"}, .env_names = {"HOME"}, .cwd = "/srv"};
    state.cpu = cpu_if_any().value_or(tinykvm::CpuState());
    const std::vector<std::byte> memory(kFrames * 4096, std::byte(7));
    write_snapshot(path, state, memory, {});
}

} // namespace

TEST_CASE("inspect tells what a snapshot holds and whether it runs here") {
    const Folder folder;
    const bool kvm = cpu_if_any().has_value();
    write_sample("app.snap", tinykvm::abi::kVersion);
    const Outcome shown = inspect({"app.snap"});
    CHECK(shown.err == "");
    CHECK(shown.code == 0);
    CHECK_THAT(shown.out, contains("/bin/hello") && contains("--port") && contains("/srv"));
    CHECK_THAT(shown.out, contains(kvm ? "\ncompatible: yes\n" : "\ncompatible: unknown: "));
    CHECK_THAT(inspect({"--verify", "app.snap"}).out, contains("verified"));
    CHECK(inspect({"app.snap", "--verify"}).out == inspect({"--verify", "app.snap"}).out);

    const auto facts = nlohmann::json::parse(inspect({"--json", "--verify", "app.snap"}).out);
    CHECK(facts["program"] == "/bin/hello");
    CHECK(facts["verified"] == true);
    CHECK(facts.contains("compatible") == kvm);

    write_sample("other.snap", tinykvm::abi::kVersion + 1);
    const Outcome other = inspect({"other.snap"});
    CHECK(other.code == 7);
    CHECK_THAT(other.out, contains("\ncompatible: no: "));
    CHECK(nlohmann::json::parse(inspect({"--json", "other.snap"}).out)["compatible"] == false);
}

TEST_CASE("inspect of what is no sound snapshot: one line") {
    const Folder folder;
    folder.write("text", "hello");
    struct Row {
        std::vector<std::string> words;
        int code;
    };
    const Row rows[] = {
        {{"nowhere.snap"}, 3},
        {{"text"}, 7},
        {{"."}, 7},
        {{}, 2},
        {{"text", "text"}, 2},
        {{"--verfy", "text"}, 2},
        {{"--json=perhaps", "text"}, 2},
    };
    for (const Row& row : rows) {
        CAPTURE(row.words);
        const Outcome outcome = inspect(row.words);
        CHECK(outcome.code == row.code);
        CHECK(outcome.out == "");
        CHECK(one_line(outcome.err));
    }
    CHECK(inspect({"--verfy", "text"}).err == "kvmserver: unknown option --verfy; did you mean --verify?\n");

    write_sample("app.snap", tinykvm::abi::kVersion);
    std::ifstream whole("app.snap", std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(whole), std::istreambuf_iterator<char>()};
    folder.write("short.snap", bytes.substr(0, bytes.size() - 1));
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    folder.write("flipped.snap", bytes);
    for (const char* name : {"short.snap", "flipped.snap"}) {
        CAPTURE(name);
        CHECK(inspect({"--verify", name}).code == 7);
        CHECK_THAT(inspect({"--verify", name}).err, contains(name));
    }
}
