#include "tests/unit/etcd/etcd_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "src/etcd/session.hpp"
#include "tests/catch.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/unique_fd.hpp"

namespace kvmserver::etcd::test {
namespace {

constexpr std::chrono::seconds kPatience{60};

std::string program() {
    for (const char* build : {ETCD_BUILD, ETCD_BUILD "/..", ETCD_SOURCE "/build"})
        if (const std::string file = std::string(build) + "/etcd/usr/bin/etcd"; ::access(file.c_str(), X_OK) == 0)
            return file;
    return "";
}

} // namespace

bool have_etcd() {
    if (!program().empty())
        return true;
    WARN("skipped: there is no etcd in " ETCD_BUILD "/etcd: scripts/setup.sh --tests fetches it");
    return false;
}

// Between those of the end-to-end tests and those that the kernel gives to clients: no client has it by the time a
// server listens on it.
int free_port() {
    constexpr int kFirst = 30'000, kCount = 2'700;
    static int next = ::getpid() * 16 % kCount;
    for (int i = 0; i < kCount; ++i) {
        const tinykvm::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        const int port = kFirst + next++ % kCount;
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        address.sin_port = htons(static_cast<std::uint16_t>(port));
        if (fd && ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0)
            return port;
    }
    throw std::runtime_error("no port is free");
}

Limits short_limits() {
    using std::chrono::milliseconds;
    return {.connect = milliseconds(1000), .request = milliseconds(2000), .watch_check = milliseconds(200)};
}

bool comes_true(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end)
            return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
}

void post(const Etcd& etcd, const std::string& path, const std::string& json, Credentials credentials) {
    Session session(etcd.address(), std::move(credentials), Limits());
    session.ask(path, Json::parse(json), Repeat::no);
}

Etcd::Etcd(std::vector<std::string> options)
    : options_(std::move(options)), port_(free_port()), peer_port_(free_port()) {
    start();
}

Etcd::~Etcd() { stop(); }

std::string Etcd::endpoint() const { return fmt::format("http{}://127.0.0.1:{}", ca_file_.empty() ? "" : "s", port_); }

Address Etcd::address(const std::string& prefix) const { return {{endpoint()}, prefix, ca_file_}; }

void Etcd::serve_tls(const std::string& certificate, const std::string& key) {
    ca_file_ = certificate;
    options_.insert(options_.end(), {"--cert-file", certificate, "--key-file", key});
}

void Etcd::launch() {
    const std::string peer = fmt::format("http://127.0.0.1:{}", peer_port_);
    std::vector<std::string> words{program(), "--data-dir", folder() + "/data", "--listen-client-urls", endpoint(),
                                   "--advertise-client-urls", endpoint(), "--listen-peer-urls", peer,
                                   // Of a cluster of one, which need not wait for others.
                                   "--heartbeat-interval", "20", "--election-timeout", "200", "--unsafe-no-fsync"};
    if (std::ranges::find(options_, "--initial-cluster") == options_.end())
        words.insert(words.end(), {"--initial-advertise-peer-urls", peer, "--initial-cluster", "default=" + peer});
    words.insert(words.end(), options_.begin(), options_.end());
    std::vector<char*> argv;
    for (std::string& word : words)
        argv.push_back(word.data());
    argv.push_back(nullptr);
    const std::string log = folder() + "/log";
    process_ = ::fork();
    if (process_ < 0)
        tinykvm::throw_errno("fork");
    if (process_ != 0)
        return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(fd, STDOUT_FILENO);
    ::dup2(fd, STDERR_FILENO);
    ::execv(argv[0], argv.data());
    ::_exit(127);
}

bool Etcd::alive() { return ::waitpid(process_, nullptr, WNOHANG) == 0; }

void Etcd::start() {
    launch();
    Client client(address(), {}, short_limits());
    const bool serves = comes_true([&] {
        if (!alive())
            throw std::runtime_error("etcd ended: see " + folder() + "/log");
        try {
            (void)client.get("any");
        } catch (const Refused&) { // it wants a password
        } catch (const Away&) {
            return false;
        }
        return true;
    });
    if (!serves)
        throw std::runtime_error("etcd does not serve: see " + folder() + "/log");
}

void Etcd::stop() {
    if (process_ < 0)
        return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = -1;
}

void Etcd::pause() {
    ::kill(process_, SIGSTOP);
    ::waitpid(process_, nullptr, WUNTRACED); // its threads run for a while yet
}
void Etcd::resume() { ::kill(process_, SIGCONT); }

Follower::Follower(const Address& address, std::int64_t from, Credentials credentials, const Limits& limits)
    : client_(address, std::move(credentials), limits), watch_(client_), thread_([this, from] {
          try {
              end_ = watch_.follow(from, [this](Batch batch) {
                  const std::lock_guard lock(mutex_);
                  batches_.push_back(std::move(batch));
              });
          } catch (const Refused&) {
              refused_ = true;
          }
      }) {}

Follower::~Follower() {
    watch_.stop();
    if (thread_.joinable())
        thread_.join();
}

std::vector<Batch> Follower::batches() {
    const std::lock_guard lock(mutex_);
    return batches_;
}

bool Follower::comes(const std::function<bool(const std::vector<Batch>&)>& condition) {
    return comes_true([&] { return condition(batches()); });
}

bool Follower::has_events(std::size_t count) {
    return comes([count](const std::vector<Batch>& batches) {
        std::size_t all = 0;
        for (const Batch& batch : batches)
            all += batch.events.size();
        return all >= count;
    });
}

Watch::End Follower::end() {
    thread_.join();
    return end_;
}

} // namespace kvmserver::etcd::test
