#include "src/daemon/daemon.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <tuple>

#include "src/daemon/routing.hpp"
#include "src/daemon/supervisor.hpp"
#include "src/http/front.hpp"
#include "src/store/stored_snapshot.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::daemon {

using namespace tinykvm;

namespace {

constexpr int kLookMs = 200; // how soon a deploy by another process is seen
constexpr std::chrono::seconds kDrainPatience{30};

void log_line(const std::string& line) {
    const std::string text = line + "\n";
    (void)!::write(STDERR_FILENO, text.data(), text.size());
}

// A folder for sockets that goes with the object.
class PrivateFolder {
public:
    PrivateFolder() {
        std::string name = (std::filesystem::temp_directory_path() / "kvmserver-XXXXXX").string();
        if (!::mkdtemp(name.data())) // 0700
            throw_errno("make a folder in " + std::filesystem::temp_directory_path().string());
        path_ = name;
    }
    ~PrivateFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    PrivateFolder(const PrivateFolder&) = delete;
    PrivateFolder& operator=(const PrivateFolder&) = delete;
    const std::filesystem::path& path() const { return path_; }

private:
    std::filesystem::path path_;
};

// Lower case, without the port.
std::string host_name(std::string_view host) {
    if (const std::size_t port = host.rfind(':'); port != host.npos && host.find(']', port) == host.npos)
        host = host.substr(0, port);
    std::string name(host);
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return name;
}

class InFlight final : public http::Lease {
public:
    explicit InFlight(std::shared_ptr<Target> target) : target_(std::move(target)) { ++target_->in_flight; }
    ~InFlight() override { --target_->in_flight; }

private:
    std::shared_ptr<Target> target_;
};

class Daemon final : private http::Upstream {
public:
    explicit Daemon(ServeOptions options)
        : options_(std::move(options)), store_(options_.store), supervisor_(sockets_.path(), log_line), front_(http::Options{}, *this, nullptr) {
        for (const store::Finding& finding : store_.notes())
            log_line("kvmserver: " + finding.line);
        const bool tls = !options_.certificate.empty();
        if (tls)
            front_.use_certificate(options_.certificate, options_.key);
        front_.add_listener(std::move(options_.listening), tls);
        refresh();
    }

    int run(int signals) {
        front_.start();
        fmt::print("Serving {} functions on {}\n", table_.load()->functions, options_.address);
        std::fflush(stdout);
        for (pollfd fd{signals, POLLIN, 0};;) {
            const int n = ::poll(&fd, 1, kLookMs);
            if (n > 0)
                break;
            if (store_.data_version() != seen_)
                refresh();
        }
        front_.drain();
        front_.wait_drained(kDrainPatience);
        return 0;
    }

private:
    void connect(const http::RequestInfo& request, std::shared_ptr<http::Waiter> waiter) override {
        const auto table = table_.load();
        const std::string host = host_name(request.head.host);
        const Destination* destination = table->find(host, request.head.path);
        if (!destination)
            return waiter->failed({404, "no-route", fmt::format("no function has a route for {}{}", host, request.head.path),
                                   "`kvmserver list` shows the functions and their routes", {}});
        const std::shared_ptr<Target> target = choose(*destination);
        if (!target)
            return waiter->failed({503, "not-live", fmt::format("no version of {} is live", destination->function), "kvmserver rollback or deploy", 10});
        auto lease = std::make_unique<InFlight>(target);
        UniqueFd socket = supervisor_.connect(target);
        if (!socket)
            return waiter->failed({503, errno == EAGAIN ? "queue-full" : "not-started",
                                   fmt::format("{} takes no more requests now: {}", target->facts().name, std::strerror(errno)), "try again", 1});
        waiter->connected(std::move(socket), std::move(lease));
    }

    static std::shared_ptr<Target> choose(const Destination& destination) {
        if (destination.shares.size() == 1)
            return destination.shares.front().target;
        thread_local std::minstd_rand random(std::random_device{}());
        unsigned at = std::uniform_int_distribution<unsigned>(0, 99)(random);
        for (const Share& share : destination.shares) {
            if (at < share.percent)
                return share.target;
            at -= share.percent;
        }
        return nullptr;
    }

    // Makes the table anew. Versions that stay live keep their processes.
    void refresh() {
        seen_ = store_.data_version();
        store::Functions functions(store_);
        auto table = std::make_shared<RoutingTable>();
        std::map<Key, std::shared_ptr<Target>> targets;
        for (const store::FunctionSummary& function : functions.list()) {
            auto destination = std::make_shared<Destination>();
            destination->function = function.name;
            for (const store::Live& live : function.live) {
                const Key key{function.name, function.created, live.version};
                const auto known = targets_.find(key);
                try {
                    const auto target = known != targets_.end() ? known->second : make_target(function.name, live.version);
                    targets.emplace(key, target);
                    destination->shares.push_back({target, live.percent});
                } catch (const std::exception& error) {
                    log_line(fmt::format("kvmserver: {} v{} cannot be served: {}", function.name, live.version, error.what()));
                }
            }
            ++table->functions;
            for (const store::Route& route : function.routes)
                table->add(route, destination);
        }
        table->sort();
        targets_ = std::move(targets);
        table_.store(std::move(table));
    }

    std::shared_ptr<Target> make_target(const std::string& function, std::uint64_t version) {
        const store::VersionInfo info = store::Functions(store_).version(function, version);
        Target::Facts facts;
        facts.name = fmt::format("{} v{}", function, version);
        facts.function = function;
        facts.version = version;
        facts.machines = options_.machines;
        facts.idle_ns = static_cast<std::uint64_t>(options_.idle_seconds * 1e9);
        facts.snapshot = unpacked(info.snapshot);
        return std::make_shared<Target>(std::move(facts));
    }

    // The snapshot as a file of its own.
    std::filesystem::path unpacked(const store::Digest& digest) {
        const auto path = sockets_.path() / (digest.hex() + ".snap");
        if (std::filesystem::exists(path))
            return path;
        const store::StoredSnapshot snapshot(store_, digest);
        UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
        if (!fd)
            throw_errno(path.native());
        try {
            snapshot.export_to(fd.get());
        } catch (...) {
            ::unlink(path.c_str());
            throw;
        }
        return path;
    }

    ServeOptions options_;
    PrivateFolder sockets_;
    store::Store store_;
    std::int64_t seen_ = -1;
    using Key = std::tuple<std::string, std::int64_t, std::uint64_t>; // name, when it was made, version
    std::map<Key, std::shared_ptr<Target>> targets_;
    std::atomic<std::shared_ptr<const RoutingTable>> table_;
    Supervisor supervisor_;
    http::Front front_; // last: its threads use the rest
};

} // namespace

int serve(ServeOptions options) {
    // Before any thread is made: none may be killed by what only asks us to end.
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigaddset(&stop, SIGINT);
    ::pthread_sigmask(SIG_BLOCK, &stop, nullptr);
    const UniqueFd signals(::signalfd(-1, &stop, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals)
        throw_errno("signalfd");
    return Daemon(std::move(options)).run(signals.get());
}

} // namespace kvmserver::daemon
