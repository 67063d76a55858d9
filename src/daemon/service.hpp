// Connects the daemon's parts: HTTP front, function table, worker pool, logs and metrics.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/cluster/member.hpp"
#include "src/daemon/access_log.hpp"
#include "src/daemon/cache_service.hpp"
#include "src/daemon/certificates.hpp"
#include "src/daemon/chunk_keeper.hpp"
#include "src/daemon/control.hpp"
#include "src/daemon/daemon.hpp"
#include "src/daemon/function_table.hpp"
#include "src/daemon/measurements.hpp"
#include "src/daemon/own_requests.hpp"
#include "src/daemon/recompressor.hpp"
#include "src/daemon/storage_service.hpp"
#include "src/daemon/tcp_front.hpp"
#include "src/http/front.hpp"
#include "src/store/store.hpp"
#include "src/tracing/exporter.hpp"
#include "tinykvm/base/shared_value.hpp"

namespace kvmserver::daemon {

// Prints a line to the daemon's stderr.
void log_line(const std::string& line);

class Service final : public Control, private http::Upstream, private http::Observer {
public:
    // `listening`: a TCP or Unix socket that listens. `tcp_sockets`: a predecessor's, of TCP functions. Throws
    // UserError, HostError.
    Service(ServeOptions options, tinykvm::UniqueFd listening, std::vector<tinykvm::UniqueFd> tcp_sockets);
    ~Service() override;

    void start();
    // Accepts no new connections. Waits up to `patience` for requests in flight, and for a shorter time for the
    // daemon's own (invoke). Then the rest is refused, and the measurements are written.
    void drain(std::chrono::milliseconds patience);
    int listening_fd() const { return listening_.get(); }
    std::vector<int> tcp_fds() const; // where TCP functions listen; valid until the next refresh()
    std::string address() const;      // where clients connect: ":8080", "127.0.0.1:8080"; for people

    DaemonInfo info() const override;
    std::vector<VersionLive> live(bool running) const override;
    MetricsSnapshot metrics() const override;
    LogStore& logs() override { return logs_; }
    Measurements& measurements() override { return measurements_; }
    std::shared_ptr<const CeilingsFile> ceilings() const override { return ceilings_.load(); }
    store::Store& store() override { return store_; }
    InvokeReply invoke(const InvokeRequest& request) override; // invoke.cpp
    unsigned suspend(const std::string& function) override;    // live.cpp, as is:
    unsigned resume(const std::string& function) override;
    void hold(const std::string& function, std::uint64_t version, std::chrono::milliseconds patience) override;
    // migration.cpp, as is:
    void release(const std::string& function) override;
    std::vector<Checkpoint> checkpoint(const std::string& function, std::uint64_t version,
                                       std::chrono::milliseconds patience) override;
    void forward(const std::string& function, const store::Moved& moved) override;
    store::SavedState saved_state(const std::string& function, std::uint64_t version, unsigned machine) override;
    unsigned states(const std::string& function, std::uint64_t version) override;
    std::unique_ptr<PreparedMachine> prepare(const std::string& function, std::uint64_t version, unsigned machine,
                                             int state, std::uint64_t bytes) override;
    void set_prepared(const std::string& function, std::uint64_t version, unsigned machine,
                      std::unique_ptr<PreparedMachine> prepared) override;
    void refresh() override;
    // To be called often: what is due now and then.
    void tick();
    void claim(const std::string& function, const std::vector<ListenAddress>& addresses, bool keep) override;
    std::unique_ptr<FunctionProcess> take_spare() override { return pool_.processes().take_spare(); }
    PassedTrials& passed_trials() override { return pool_.passed_trials(); }
    bool shares_across_tenants() const override { return options_.share_across_tenants; }
    void discard(std::unique_ptr<FunctionProcess> process) override { pool_.processes().discard(std::move(process)); }
    void superseded(const Digest& snapshot) override { recompressor_.superseded(snapshot); }
    void reload() override;
    cluster::Nodes* nodes() override { return member_ ? &member_->nodes() : nullptr; }
    // Sets what else reload() does: reloading the companion's files. {} removes it, and no call is running when this
    // returns.
    void on_reload(std::function<void()> action);

private:
    std::unique_ptr<http::Lease> connect(const http::RequestInfo& request,
                                         std::shared_ptr<http::RequestWaiter> waiter) override;
    void finished(const http::RequestRecord& record) override;
    void refused(http::Refusal why) override;
    void finished(const TcpRecord& record);
    std::vector<std::shared_ptr<FunctionVersion>> suspending(const std::string& function) const;
    // How many machines of a function's version have no process and a saved state. `running`: those of the pool.
    std::map<std::pair<std::string, std::uint64_t>, unsigned>
    suspended_machines(const std::vector<VersionLive>& running) const;
    std::shared_ptr<FunctionVersion> only_live(const std::string& function, std::uint64_t version) const;
    // What is asked of a function that has moved; null: it has not.
    std::shared_ptr<FunctionVersion> elsewhere(const Destination& destination) const;
    static request::Problem back_to_here(const std::string& function, const store::Moved& moved);
    std::shared_ptr<FunctionVersion> held(const std::string& function) const; // null: it is not
    protocol::StorageAnswer connect_storage(StorageConnection connection);    // storage.cpp
    // Etcd has not been reached for longer than functions are served without it.
    bool away_too_long() const { return member_ && member_->is_away_too_long(); }
    bool read_table(bool anyhow);
    void read_certificates();
    static void count_outcome(VersionMetrics& m, request::Outcome outcome, const Request* request);
    void count(const AccessRecord& record, request::Outcome outcome, const Request* request);
    // Of a request that is over. `request` is null if no function got it.
    void write(AccessRecord& record, const Request* request);
    void log(const AccessRecord& record, request::Outcome outcome, const Request& request, std::string_view method,
             std::string_view target);
    std::shared_ptr<FunctionVersion> version_for(const InvokeRequest& request);

    const ServeOptions options_;
    tinykvm::UniqueFd listening_; // duplicate of the front's, to hand over
    std::string address_;
    std::uint16_t port_ = 0;
    const std::int64_t started_ms_;
    tinykvm::SharedValue<const CeilingsFile> ceilings_;
    store::Store store_;
    LogStore logs_;
    Metrics metrics_;
    Measurements measurements_;
    AccessLog access_log_;
    std::unique_ptr<tracing::Exporter> traces_; // null: requests are not traced
    std::shared_ptr<LogStore::Follower> to_stderr_;
    std::mutex reload_mutex_;
    std::function<void()> on_reload_; // guarded by reload_mutex_
    mutable std::mutex held_mutex_;
    std::map<std::string, std::shared_ptr<FunctionVersion>> held_; // by function; guarded by held_mutex_
    std::atomic<bool> draining_{false};
    OwnRequests own_requests_;
    CacheService cache_;
    StorageService storages_; // ended before the members that its thread uses
    WorkerPool pool_;
    FunctionTable table_;
    std::unique_ptr<Certificates> certificates_; // null: plain HTTP
    http::Front front_;                          // its threads use the members above
    TcpSockets tcp_sockets_;
    TcpFront tcp_; // its thread uses the members above
    Recompressor recompressor_;
    std::unique_ptr<ChunkKeeper> chunk_keeper_; // null: there is no bucket
    std::unique_ptr<cluster::Member> member_;   // null: the store is in no cluster
};

} // namespace kvmserver::daemon
