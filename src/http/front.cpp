#include "src/http/front.hpp"

#include <algorithm>
#include <vector>

#include "src/http/acceptor.hpp"
#include "src/http/worker.hpp"

namespace kvmserver::http {

class Front::Impl {
public:
    Impl(const Options& options, Upstream& upstream, Observer* observer)
        : shared_(options, upstream, observer),
          table_({options.max_connections, options.max_per_client, options.spare_loopback}) {
        for (unsigned i = 0; i < std::max(1u, options.threads); ++i)
            workers_.push_back(std::make_unique<Worker>(shared_));
    }

    ~Impl() {
        drain();
        // Repeat: a connection may be on its way from one thread to another.
        do {
            for (const auto& worker : workers_)
                worker->stop();
        } while (started_ && !wait_drained(std::chrono::milliseconds(20)));
        acceptors_.clear(); // before the io_context that they use
    }

    void use_certificate(TlsContext context) { tls_.set(std::move(context)); }

    void pass_through(Passthrough passthrough) { shared_.passthrough = std::move(passthrough); }

    void add_listener(tinykvm::UniqueFd socket, bool tls) {
        acceptors_.push_back(std::make_shared<Acceptor>(
            workers_.front()->io(), std::move(socket), tls ? &tls_ : nullptr, table_, shared_.options.spare_unix,
            shared_.observer, [this](Accepted client) { least_busy().deal(std::move(client)); }));
    }

    void start() {
        for (const auto& acceptor : acceptors_)
            acceptor->start();
        for (const auto& worker : workers_)
            worker->start();
        started_ = true;
    }

    void drain() {
        if (shared_.draining.exchange(true))
            return;
        for (const auto& acceptor : acceptors_)
            acceptor->stop([this] {
                const std::lock_guard lock(shared_.mutex);
                shared_.gone.notify_all();
            });
        for (const auto& worker : workers_)
            worker->drain();
    }

    bool wait_drained(std::chrono::milliseconds patience) {
        std::unique_lock lock(shared_.mutex);
        return shared_.gone.wait_for(lock, patience, [this] {
            for (const auto& acceptor : acceptors_)
                if (started_ && !acceptor->stopped())
                    return false;
            for (const auto& worker : workers_)
                if (worker->open_connections() != 0)
                    return false;
            return true;
        });
    }

    Counters counters() const {
        Counters sum;
        for (const auto& worker : workers_)
            worker->add_counters(sum);
        return sum;
    }

    ConnectionTable& places() { return table_; }

private:
    // The thread that accepts comes first if others have as few: it need not be woken.
    Worker& least_busy() {
        const auto& least = *std::min_element(workers_.begin(), workers_.end(), [](const auto& one, const auto& other) {
            return one->open_connections() < other->open_connections();
        });
        return *least;
    }

    Shared shared_;
    CurrentCertificate tls_;
    ConnectionTable table_; // must outlive the connections
    std::vector<std::unique_ptr<Worker>> workers_;
    std::vector<std::shared_ptr<Acceptor>> acceptors_;
    bool started_ = false;
};

Front::Front(const Options& options, Upstream& upstream, Observer* observer)
    : impl_(std::make_unique<Impl>(options, upstream, observer)) {}
Front::~Front() = default;
void Front::use_certificate(const std::string& chain_file, const std::string& key_file) {
    impl_->use_certificate(load_certificate(chain_file, key_file));
}
void Front::use_certificate(TlsContext context) { impl_->use_certificate(std::move(context)); }
void Front::pass_through(Passthrough passthrough) { impl_->pass_through(std::move(passthrough)); }
void Front::add_listener(tinykvm::UniqueFd socket, bool tls) { impl_->add_listener(std::move(socket), tls); }
void Front::start() { impl_->start(); }
void Front::drain() { impl_->drain(); }
bool Front::wait_drained(std::chrono::milliseconds patience) { return impl_->wait_drained(patience); }
Counters Front::counters() const { return impl_->counters(); }
ConnectionTable& Front::places() { return impl_->places(); }

} // namespace kvmserver::http
