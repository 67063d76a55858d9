// A real etcd on this host, out of the folder where scripts/setup.sh --tests puts it.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "src/etcd/client.hpp"
#include "src/etcd/watch.hpp"
#include "tests/unit/store/samples.hpp"

namespace kvmserver::etcd::test {

// The test is skipped if there is no etcd: says so on standard error.
bool have_etcd();

class Etcd {
public:
    // Serves when it returns. `options` are for its command line.
    explicit Etcd(std::vector<std::string> options = {});
    ~Etcd();
    Etcd(const Etcd&) = delete;
    Etcd& operator=(const Etcd&) = delete;

    void stop(); // kills it
    void start();
    void pause();  // SIGSTOP
    void resume(); // SIGCONT
    Address address(const std::string& prefix = "test/") const;
    std::string endpoint() const;
    std::string folder() const { return folder_.path().string(); }
    void serve_tls(const std::string& certificate, const std::string& key); // from the next start() on

private:
    void launch();
    bool alive();
    store::test::TempFolder folder_;
    std::vector<std::string> options_;
    std::string ca_file_;
    int port_ = 0, peer_port_ = 0;
    pid_t process_ = -1;
};

int free_port();

// Short, so that no test waits long.
Limits short_limits();

// Asks again until `condition` holds; false after a long time.
bool comes_true(const std::function<bool()>& condition);

// A POST to the gateway for what the client has no function for; an error otherwise than by Away fails the test.
void post(const Etcd& etcd, const std::string& path, const std::string& json, Credentials credentials = {});

// What a Watch on a thread of its own tells.
class Follower {
public:
    Follower(const Address& address, std::int64_t from, Credentials credentials = {},
             const Limits& limits = short_limits());
    ~Follower();
    // Waits until there are so many events in all; false after a long time.
    bool has_events(std::size_t count);
    bool comes(const std::function<bool(const std::vector<Batch>&)>& condition);
    std::vector<Batch> batches();
    // Waits until follow() returns.
    Watch::End end();
    void stop() { watch_.stop(); }
    const std::string& why() const { return watch_.why(); } // after end()
    bool refused() const { return refused_; }               // after end()

private:
    Client client_;
    Watch watch_;
    std::mutex mutex_;
    std::vector<Batch> batches_; // guarded by mutex_
    Watch::End end_ = Watch::End::broken;
    bool refused_ = false;
    std::thread thread_; // last: it uses the rest
};

} // namespace kvmserver::etcd::test
