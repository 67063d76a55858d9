// The API on a store of its own, with a daemon that serves nothing behind it, and requests to it.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "src/admin/api.hpp"
#include "src/daemon/control.hpp"
#include "src/daemon/measurements.hpp"
#include "src/daemon/passed_trials.hpp"
#include "tests/unit/store/samples.hpp"

namespace kvmserver::admin::test {

class QuietDaemon : public daemon::Control {
public:
    explicit QuietDaemon(store::Store& store) : store_(store) {}
    daemon::DaemonInfo info() const override { return {}; }
    std::vector<daemon::VersionLive> live(bool) const override { return {}; }
    daemon::MetricsSnapshot metrics() const override { return {}; }
    daemon::LogStore& logs() override { return logs_; }
    daemon::Measurements& measurements() override { return measurements_; }
    std::shared_ptr<const CeilingsFile> ceilings() const override { return std::make_shared<CeilingsFile>(); }
    store::Store& store() override { throw std::logic_error("the API has its own"); }
    daemon::InvokeReply invoke(const daemon::InvokeRequest&) override { return {}; }
    unsigned suspend(const std::string&) override { return 1; }
    unsigned resume(const std::string&) override { return 1; }
    void hold(const std::string&, std::uint64_t, std::chrono::milliseconds) override {}
    void release(const std::string&) override {}
    std::vector<daemon::Checkpoint> checkpoint(const std::string&, std::uint64_t, std::chrono::milliseconds) override {
        return {};
    }
    void forward(const std::string&, const store::Moved&) override {}
    std::unique_ptr<daemon::PreparedMachine> prepare(const std::string&, std::uint64_t, unsigned, int,
                                                     std::uint64_t) override {
        return nullptr;
    }
    void set_prepared(const std::string&, std::uint64_t, unsigned, std::unique_ptr<daemon::PreparedMachine>) override {}
    store::SavedState saved_state(const std::string&, std::uint64_t, unsigned) override {
        throw store::NotFound("there is none");
    }
    unsigned states(const std::string&, std::uint64_t) override { return 0; }
    void claim(const std::string&, const std::vector<ListenAddress>&, bool) override {}
    std::unique_ptr<daemon::FunctionProcess> take_spare() override { return nullptr; }
    daemon::PassedTrials& passed_trials() override { return passed_trials_; }
    bool shares_across_tenants() const override { return false; }
    void discard(std::unique_ptr<daemon::FunctionProcess>) override {}
    void refresh() override;
    void superseded(const Digest& snapshot) override { dropped.push_back(snapshot); }
    void reload() override {}
    cluster::Nodes* nodes() override { return nullptr; }

    std::vector<Digest> dropped; // by superseded()

private:
    store::Store& store_;
    daemon::LogStore logs_{""};
    daemon::PassedTrials passed_trials_;
    daemon::Measurements measurements_{store_.shared_folder(), [] { return daemon::MetricsSnapshot{}; },
                                       [](const std::string&) {}};
};

struct Reply {
    unsigned status = 0;
    std::string body;
    Headers headers;
    std::string header(const std::string& name) const; // "": there is none
    nlohmann::json json() const { return nlohmann::json::parse(body); }
};

// A client that is there until `leaves` says so, which it is asked often.
class Client : public Exchange {
public:
    explicit Client(std::string body = "") : body_(std::move(body)) {}
    std::function<bool(const Reply&)> leaves = [](const Reply&) { return false; };
    const Reply& reply() const { return reply_; }

    std::size_t read(std::span<std::byte> into) override;
    void begin(unsigned status, const Headers& headers, std::optional<std::uint64_t> length) override;
    void write(std::span<const std::byte> bytes) override;
    bool gone_within(int) override { return leaves(reply_); }
    bool begun() const override { return reply_.status != 0; }

private:
    std::string body_;
    std::size_t at_ = 0;
    Reply reply_;
};

class World {
public:
    explicit World(ApiOptions options = {});

    // As the server's user does by the socket, or (with a token) somebody by TCP.
    Reply ask(const std::string& method, const std::string& target, const std::string& body = "",
              const Headers& headers = {}, const std::string& token = "");
    void ask(const std::string& method, const std::string& target, Client& client, const Headers& headers = {},
             const std::string& token = "");

    store::test::TempFolder folder;
    store::Store store{folder / "store"};
    QuietDaemon daemon{store};
    OpenStore source{folder / "store", store};
    Api api;
};

} // namespace kvmserver::admin::test
