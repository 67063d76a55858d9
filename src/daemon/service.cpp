#include "src/daemon/service.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <set>
#include <tuple>

#include "src/common/clock.hpp"
#include "src/common/random_hex.hpp"
#include "src/daemon/hook_request.hpp"
#include "src/daemon/sticky.hpp"
#include "tinykvm/base/error.hpp"

namespace kvmserver::daemon {

using namespace tinykvm;

namespace {

constexpr std::chrono::milliseconds kOwnPatience{5000};

// Lower case, without a port.
std::string host_name(std::string_view host) {
    if (const std::size_t port = host.rfind(':'); port != host.npos && host.find(']', port) == host.npos)
        host = host.substr(0, port);
    std::string name(host);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return name;
}

// The number of open files reserved for the API and for function processes.
constexpr std::uint64_t kMaxFilesOfOthers = 4096, kMaxConnections = 16'384;
// A connection takes one open file, and one more while a machine answers its request. One that waits for a machine has
// none yet, so there is room for one in so many to be answered at once; beyond that clients get 503.
constexpr std::uint64_t kConnectionsPerAnswer = 4;

std::uint64_t connections_that_fit() {
    rlimit files{};
    if (::getrlimit(RLIMIT_NOFILE, &files) != 0)
        throw_errno("getrlimit");
    const std::uint64_t others = std::min<std::uint64_t>(files.rlim_cur / 4, kMaxFilesOfOthers);
    return std::max<std::uint64_t>(1, (files.rlim_cur - others) * kConnectionsPerAnswer / (kConnectionsPerAnswer + 1));
}

http::Options front_options(const ServeOptions& options) {
    http::Options out;
    out.threads = options.threads;
    out.progress_timeout = {}; // the machines enforce each function's own limit
    out.connect_timeout = {};  // the scheduler limits the wait in the queue
    out.drain_grace = std::chrono::milliseconds(250);
    const std::uint64_t fit = connections_that_fit();
    if (options.max_connections > fit)
        log_line(fmt::format("kvmserver: --max-connections={}: the limit of open files has room for {}: raise it "
                             "(ulimit -n, LimitNOFILE= in the unit)",
                             options.max_connections, fit));
    out.max_connections = std::min(options.max_connections == 0 ? kMaxConnections : options.max_connections, fit);
    out.max_per_client =
        options.max_per_client == 0 ? std::max<std::uint64_t>(1, out.max_connections / 2) : options.max_per_client;
    out.spare_loopback = options.max_per_client == 0; // a client on this host may be a proxy
    out.min_rate = options.min_rate;
    if (options.traces)
        out.trace_share = options.traces->share;
    return out;
}

// The address that a socket listens on, as text, and its port.
std::pair<std::string, std::uint16_t> address_of(int fd) {
    sockaddr_storage real{};
    socklen_t bytes = sizeof real;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&real), &bytes) < 0)
        throw_errno("getsockname");
    char text[INET6_ADDRSTRLEN] = "";
    if (real.ss_family == AF_INET) {
        const auto& in = reinterpret_cast<const sockaddr_in&>(real);
        ::inet_ntop(AF_INET, &in.sin_addr, text, sizeof text);
        const std::uint16_t port = ntohs(in.sin_port);
        return {fmt::format("{}:{}", in.sin_addr.s_addr == INADDR_ANY ? "" : text, port), port};
    }
    if (real.ss_family == AF_INET6) {
        const auto& in6 = reinterpret_cast<const sockaddr_in6&>(real);
        ::inet_ntop(AF_INET6, &in6.sin6_addr, text, sizeof text);
        const std::uint16_t port = ntohs(in6.sin6_port);
        return {IN6_IS_ADDR_UNSPECIFIED(&in6.sin6_addr) ? fmt::format(":{}", port) : fmt::format("[{}]:{}", text, port),
                port};
    }
    const auto& un = reinterpret_cast<const sockaddr_un&>(real);
    return {std::string(un.sun_path, ::strnlen(un.sun_path, sizeof un.sun_path)), 0};
}

std::unique_ptr<tracing::Exporter> exporter(const std::optional<TraceOptions>& options) {
    if (!options)
        return nullptr;
    char host[256] = "";
    ::gethostname(host, sizeof host - 1);
    return std::make_unique<tracing::Exporter>(
        tracing::Resource{options->version, random_hex(8), host}, options->send,
        [](const std::string& line) { log_line("kvmserver: " + line); }, tracing::Exporter::Limits{});
}

std::shared_ptr<const CeilingsFile> read_ceilings(const std::filesystem::path& path) {
    return std::make_shared<const CeilingsFile>(path.empty() ? CeilingsFile() : CeilingsFile::read(path));
}

// Of a function with protocol = "tls-passthrough": who asks for its host over HTTP, or over TLS for another host.
request::Problem tls_of_its_own(const std::string& function) {
    request::Problem problem = problem_for(request::Outcome::no_route, {});
    problem.detail = fmt::format("{} holds the key of this host itself and is reached by TLS only.", function);
    problem.hint = "The URL begins with https://, and the TLS client names this host (SNI).";
    return problem;
}

} // namespace

void log_line(const std::string& line) {
    const std::string text = line + "\n";
    (void)!::write(STDERR_FILENO, text.data(), text.size());
}

Service::Service(ServeOptions options, UniqueFd listening, std::vector<UniqueFd> tcp_sockets)
    : options_(std::move(options)), listening_(::fcntl(listening.get(), F_DUPFD_CLOEXEC, 0)), started_ms_(now_ms()),
      ceilings_(read_ceilings(options_.ceilings)),
      store_(options_.store, {.bucket = options_.chunks, .shared = options_.cluster}), logs_(options_.store / "logs"),
      measurements_(
          store_.shared_folder(), [this] { return metrics_.snapshot(); },
          [](const std::string& line) { log_line("kvmserver: " + line); }),
      access_log_(options_.access_log), traces_(exporter(options_.traces)),
      to_stderr_(logs_.follow(
          {},
          [](const LogLine& line) { log_line(fmt::format("[{} v{}] {}", line.function, line.version, line.text)); })),
      cache_(FolderCache(default_cache_folder()), [](const std::string& line) { log_line("kvmserver: " + line); }),
      storages_([this](StorageConnection connection) { return connect_storage(std::move(connection)); },
                [](const std::string& line) { log_line("kvmserver: " + line); }),
      pool_(
          store_, cache_, storages_, logs_, metrics_,
          {options_.max_machines, options_.log_rate, options_.memory_reserve}, options_.jail, *options_.examinations,
          [this](Request& request) { write(*request.record, &request); }, log_line),
      table_(
          store_, pool_, logs_,
          {.machines = options_.machines,
           .idle_ns = static_cast<std::uint64_t>(options_.idle_seconds * 1e9),
           .rest_ns = static_cast<std::uint64_t>(options_.rest_seconds * 1e9),
           .share_across_tenants = options_.share_across_tenants},
          [this] { return ceilings_.load(); }, [](const std::string& line) { log_line("kvmserver: " + line); }),
      front_(front_options(options_), *this, this),
      tcp_sockets_(std::move(tcp_sockets), [](const std::string& line) { log_line("kvmserver: " + line); }),
      tcp_(tcp_sockets_, pool_, front_.places(),
           {[this](std::string_view host) { return table_.passing(host); },
            [this](const std::string& function) { return table_.named(function); }, [this] { return away_too_long(); }},
           {[this](const TcpRecord& record) { finished(record); }, [this](http::Refusal why) { refused(why); }}),
      recompressor_(
          options_.store, {.bucket = options_.chunks, .shared = options_.cluster}, {.mode = options_.jail.mode},
          *options_.examinations,
          [this](const Digest& snapshot) {
              read_table(false); // it may still name the snapshot
              return !pool_.starts_from(snapshot);
          },
          [](const std::string& line) { log_line("kvmserver: " + line); }) {
    if (options_.chunks)
        chunk_keeper_ = std::make_unique<ChunkKeeper>(options_.store, options_.chunks, options_.chunk_cache_bytes,
                                                      [](const std::string& line) { log_line("kvmserver: " + line); });
    if (options_.cluster) {
        cluster::NodeInfo self = options_.node;
        self.started_ms = started_ms_;
        member_ = std::make_unique<cluster::Member>(
            options_.store, store::StoreOptions{.bucket = options_.chunks, .shared = options_.cluster},
            options_.cluster, self,
            std::chrono::milliseconds(static_cast<std::int64_t>(options_.cluster_away_seconds * 1e3)),
            [](const std::string& line) { log_line("kvmserver: " + line); });
    }
    if (!listening_)
        throw_errno("dup listening socket");
    std::tie(address_, port_) = address_of(listening.get());
    for (const store::Finding& finding : store_.notes())
        log_line("kvmserver: " + finding.line);
    if (options_.tls) {
        certificates_ = std::make_unique<Certificates>(store_, options_.certificate, options_.key,
                                                       [](const std::string& line) { log_line("kvmserver: " + line); });
        front_.use_certificate(certificates_->context());
    }
    if (options_.tls)
        front_.pass_through({.any = [this] { return table_.has_tls_passthrough(); },
                             .has = [this](std::string_view host) { return table_.passing(host) != nullptr; },
                             .take = tcp_.adopter()});
    front_.add_listener(std::move(listening), options_.tls);
    read_table(true);
    if (!options_.tls && table_.has_tls_passthrough())
        log_line("kvmserver: functions with protocol = \"tls-passthrough\" are not reached: start serve with --tls");
}

Service::~Service() { storages_.end(); }

std::string Service::address() const { return address_; }

void Service::start() {
    front_.start();
    tcp_.start();
    recompressor_.start();
}

void Service::refresh() {
    if (read_table(false))
        recompressor_.look();
    read_certificates();
}

void Service::read_certificates() {
    if (certificates_ && certificates_->read_store())
        front_.use_certificate(certificates_->context());
}

bool Service::read_table(bool anyhow) {
    const FunctionTable::Read read = table_.refresh(anyhow);
    switch (read) {
    case FunctionTable::Read::nothing: return false;
    case FunctionTable::Read::some: measurements_.change([this] { return table_.changes(); }); break;
    case FunctionTable::Read::all: measurements_.keep([this] { return table_.functions(); }); break;
    }
    if (tcp_sockets_.want([this] { return table_.addresses(); }) || tcp_.has_near())
        tcp_.look();
    return true;
}

void Service::tick() {
    measurements_.tick();
    if (member_)
        member_->tick();
    if (tcp_sockets_.retry())
        tcp_.look();
}

std::vector<int> Service::tcp_fds() const {
    std::vector<int> fds;
    for (const auto& [address, open] : tcp_sockets_.open())
        fds.push_back(open.socket->get());
    return fds;
}

void Service::claim(const std::string& function, const std::vector<ListenAddress>& addresses, bool keep) {
    tcp_sockets_.claim(function, addresses, keep);
}

void Service::drain(std::chrono::milliseconds patience) {
    const auto end = std::chrono::steady_clock::now() + patience;
    draining_ = true;
    recompressor_.stop();
    // Closes the front's copy too: new clients are refused, or served by another holder of the socket.
    listening_.reset();
    front_.drain();
    tcp_.drain();
    front_.wait_drained(patience);
    const auto time_left = [end] {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
        return std::max(left, std::chrono::milliseconds(0));
    };
    tcp_.wait_drained(time_left());
    const auto left = time_left();
    own_requests_.end(std::clamp(left, std::chrono::milliseconds(0), kOwnPatience));
    measurements_.write();
}

// A step that fails does not prevent the others.
void Service::reload() {
    std::exception_ptr first;
    const auto step = [&](const auto& action) {
        try {
            action();
        } catch (...) {
            if (!first)
                first = std::current_exception();
        }
    };
    step([&] {
        if (certificates_)
            certificates_->read_files();
    });
    step([&] { read_certificates(); });
    step([&] { access_log_.reopen(); });
    step([&] { ceilings_.store(read_ceilings(options_.ceilings)); });
    step([&] {
        const std::lock_guard lock(reload_mutex_);
        if (on_reload_)
            on_reload_();
    });
    step([&] { read_table(true); });
    if (first)
        std::rethrow_exception(first);
}

void Service::on_reload(std::function<void()> action) {
    const std::lock_guard lock(reload_mutex_);
    on_reload_ = std::move(action);
}

std::unique_ptr<http::Lease> Service::connect(const http::RequestInfo& request,
                                              std::shared_ptr<http::RequestWaiter> waiter) {
    if (away_too_long()) {
        waiter->failed(problem_for(request::Outcome::cluster_away, {}));
        return nullptr;
    }
    const std::string host = host_name(request.head.host);
    const store::Route* route = nullptr;
    const auto destination = table_.routes().find(host, request.head.path, &route);
    if (!destination) {
        request::Circumstances of;
        of.reason = host + std::string(request.head.path);
        request::Problem problem = problem_for(request::Outcome::no_route, of);
        if (table_.size() == 0)
            problem.hint = "Nothing is deployed yet: `kvmserver deploy` makes a function.";
        waiter->failed(std::move(problem));
        return nullptr;
    }
    Choice choice{elsewhere(*destination), ""};
    if (!choice.machine)
        choice = choose(*destination, {request.head.fields, route->path, request.secure});
    const std::shared_ptr<FunctionVersion>& version = choice.machine;
    if (!version) {
        request::Circumstances of;
        of.function = destination->function;
        waiter->failed(problem_for(request::Outcome::not_live, of));
        return nullptr;
    }
    const Given& given = *version->facts().given;
    if (given.moved && !request.head.find(kForwardedHeader).empty()) {
        waiter->failed(back_to_here(destination->function, *given.moved));
        return nullptr;
    }
    if (given.tcp) {
        waiter->failed(tls_of_its_own(destination->function));
        return nullptr;
    }
    for (const auto& [hook, name] :
         {std::pair(&given.after_restore, "after-restore"), std::pair(&given.before_snapshot, "before-snapshot")})
        if (is_hook_request(request.head.method, request.head.path, *hook)) {
            waiter->failed(hook_refused(*hook, name, destination->function));
            return nullptr;
        }
    if (!choice.set_cookie.empty())
        waiter->add_to_reply(choice.set_cookie);
    return pool_.submit(version,
                        {.request_id = request.request_id,
                         .client_ip = request.client_ip,
                         .opening = request.opening,
                         .more_follows = request.more_follows,
                         .route = request.traced ? std::string_view(route->path) : std::string_view()},
                        std::move(waiter));
}

DaemonInfo Service::info() const {
    DaemonInfo info;
    info.address = address_;
    info.port = port_;
    info.tls = options_.tls;
    info.started_ms = started_ms_;
    info.functions = table_.size();
    const WorkerPool::Sums sums = pool_.sums();
    info.processes = sums.processes;
    info.machines = sums.machines;
    info.max_machines = pool_.max_machines();
    info.draining = draining_;
    info.drained = member_ && member_->state().drained;
    info.away_too_long = away_too_long();
    return info;
}

MetricsSnapshot Service::metrics() const {
    MetricsSnapshot snapshot = metrics_.snapshot();
    const http::Counters counters = front_.counters();
    snapshot.in_flight = counters.in_flight;
    snapshot.connections = counters.connections;
    snapshot.open_connections = counters.open_connections;
    snapshot.open_tcp_connections = tcp_.open_connections();
    snapshot.given_back = pool_.sums().given_back;
    snapshot.started_ms = static_cast<std::uint64_t>(started_ms_);
    if (traces_)
        snapshot.spans = traces_->counts();
    if (options_.chunks)
        snapshot.chunks = options_.chunks->counts();
    if (member_) {
        const cluster::FollowerState state = member_->state();
        snapshot.cluster = ClusterState{state.connected, state.revision, state.drained, away_too_long()};
    }
    if (certificates_) {
        snapshot.certificate_expiry = certificates_->expiry();
        snapshot.certificate_expiries = certificates_->expiries();
    }
    return snapshot;
}

} // namespace kvmserver::daemon
