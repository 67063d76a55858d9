#include "src/cli/platform/remote_connection.hpp"

#include <fmt/format.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "src/cli/platform/platform.hpp"
#include "src/cli/platform/progress.hpp"
#include "src/cli/version.hpp"
#include "src/common/digest.hpp"
#include "src/common/environment.hpp"
#include "src/remote/remotes.hpp"
#include "src/remote/upload.hpp"
#include "tinykvm/base/error.hpp"
#include "tinykvm/base/write.hpp"

namespace kvmserver::cli::platform {
namespace {

using nlohmann::json;
using tinykvm::ExitCode;
using tinykvm::UserError;

constexpr int kTries = 6; // of a download, without progress between them

class There final : public Connection {
public:
    There(remote::Server server, const std::filesystem::path& store, bool quiet, Context& context)
        : client_(std::move(server)), store_(store), quiet_(quiet), context_(context) {}

    json call(const std::string& method, const std::string& target, const json& body) override {
        try {
            return client_.call(method, target, body);
        } catch (const remote::Problem& problem) {
            // The output of a version that did not become healthy.
            if (const auto output = problem.document().find("output");
                output != problem.document().end() && output->is_string())
                print_output(context_, *output);
            throw;
        }
    }

    Pushed push(const ops::DigestedFile& file) override {
        if (may_write_store(file.bytes()))
            if (const auto stored = put_in_store(file))
                return *stored;
        ProgressBar bar("Uploading", context_, quiet_);
        const remote::Uploaded done =
            remote::upload(client_, file, [&](std::uint64_t at, std::uint64_t all) { bar.show(at, all); });
        return {done.snapshot, done.bytes, done.new_bytes};
    }

    Pulled pull(const std::string& reference, int fd) override;

    void stream(const std::string& target, const std::function<bool(std::string_view)>& sink) override {
        remote::Ask ask;
        ask.target = target;
        ask.sink = sink;
        ask.endless = true;
        const remote::Reply reply = client_.ask(ask);
        if (reply.status >= 400)
            remote::throw_problem(reply, client_.shown());
    }

    Raw raw(const std::string& method, const std::string& target, const Headers& headers,
            const std::string& body) override {
        remote::Ask ask;
        ask.method = method;
        ask.target = target;
        ask.headers = headers;
        ask.body = body;
        remote::Reply reply = client_.ask(ask);
        if (reply.status >= 400 && reply.header("Content-Type") == "application/problem+json" &&
            reply.header("Kvmserver-Version").empty())
            remote::throw_problem(reply, client_.shown());
        return {reply.status, std::move(reply.headers), std::move(reply.body)};
    }

    Later later() override {
        if (!server().empty())
            return {};
        const nlohmann::json info = call("GET", "/v1/info", nullptr);
        const auto daemon = info.find("daemon");
        if (daemon == info.end())
            return {};
        return {daemon->value("compresses_later", false), daemon->value("takes_warmed", false)}; // false: older
    }

    std::string shown() const override { return client_.shown(); }
    std::string server() const override { return client_.other_host(); }

private:
    // Whether this process may write a file into the daemon's store: it would belong to the right user, both sides know
    // the store's format, and the disk has the room that the daemon asks for.
    bool may_write_store(std::uint64_t bytes) {
        struct stat info {};
        if (store_.empty() || ::stat(store_.c_str(), &info) != 0 || info.st_uid != ::geteuid() || !store_exists(store_))
            return false;
        const json daemon = call("GET", "/v1/info", nullptr);
        const json disk = daemon.value("store", json::object()).value("disk", json::object());
        const auto free = disk.value("free_bytes", std::uint64_t{0}), kept = disk.value("kept_free_bytes", free);
        return daemon.value("version", "") == version_number() && free > kept && free - kept >= bytes;
    }

    // Takes half the time of an upload: nothing goes through a socket, and each byte is read twice instead of seven
    // times. Returns nothing if the daemon has another store than this process.
    std::optional<Pushed> put_in_store(const ops::DigestedFile& file) {
        const auto has = [this](const Digest& digest) {
            const json asked{{"snapshot", "sha256:" + digest.hex()}, {"pieces", json::array()}};
            return call("POST", "/v1/snapshots/missing", asked).value("present", false);
        };
        if (file.origin() == ops::DigestedFile::Origin::unknown && has(file.digest()))
            return Pushed{"sha256:" + file.digest().hex(), file.bytes(), 0};
        ProgressBar bar("Storing", context_, quiet_);
        const auto store = open_store_at(store_, context_);
        const ops::Imported imported =
            ops::import_snapshot(*store, file, [&](std::uint64_t at, std::uint64_t all) { bar.show(at, all); });
        const std::string digest = imported.hold.digest().hex();
        // From here on the daemon keeps it until a function names it.
        const json reply = call("POST", "/v1/uploads", {{"size", imported.bytes}, {"sha256", digest}});
        if (!reply.value("complete", false))
            return std::nullopt;
        return Pushed{"sha256:" + digest, imported.bytes, imported.new_bytes};
    }

    remote::Client client_;
    const std::filesystem::path store_;
    bool quiet_;
    Context& context_;
};

std::uint64_t length_of(const remote::Reply& reply) {
    return std::strtoull(std::string(reply.header("Content-Length")).c_str(), nullptr, 10);
}

// Resumes the download until it is complete, and checks its digest.
Pulled There::pull(const std::string& reference, int fd) {
    ProgressBar bar("Downloading", context_, quiet_);
    const std::string named = target_of({"snapshots", reference});
    const remote::Reply head = client_.ask({.method = "HEAD", .target = named});
    if (head.status >= 400) {
        client_.call("GET", named); // throws the problem with its text
        throw UserError(ExitCode::failure, fmt::format("{}: status {}", reference, head.status));
    }
    std::string digest(head.header("ETag"));
    digest = digest.size() > 2 ? digest.substr(1, digest.size() - 2) : "";
    const std::uint64_t size = length_of(head);
    Sha256 sum;
    std::uint64_t at = 0;
    for (int failures = 0; at < size;) {
        const std::uint64_t before = at;
        remote::Ask ask;
        ask.target = target_of({"snapshots", "sha256:" + digest});
        ask.headers = {{"Range", fmt::format("bytes={}-", at)}};
        ask.transfer = true;
        ask.sink = [&](std::string_view bytes) {
            tinykvm::write_all(fd, std::as_bytes(std::span(bytes)), "the snapshot");
            sum.update(std::as_bytes(std::span(bytes)));
            at += bytes.size();
            bar.show(at, size);
            return at <= size;
        };
        try {
            const remote::Reply reply = client_.ask(ask);
            if (reply.status >= 400)
                remote::throw_problem(reply, client_.shown());
            if (reply.status != 206)
                throw UserError(ExitCode::failure, fmt::format("{}: status {}", reference, reply.status));
        } catch (const remote::Broken&) {
            failures = at > before ? 0 : failures + 1;
            if (failures >= kTries)
                throw;
            ::usleep(200'000u << std::min(failures, 4));
        }
    }
    if (at != size || sum.finish().hex() != digest)
        throw UserError(ExitCode::bad_snapshot,
                        fmt::format("{}: the bytes received are not sha256:{}: run kvmserver verify on the server",
                                    reference, digest));
    return {"sha256:" + digest, size};
}

} // namespace

remote::Server server_named(const std::string& name) {
    remote::Server server;
    const remote::Remotes remotes(remote::Remotes::default_file());
    if (const auto known = remotes.find(name)) {
        server.url = known->url;
        server.token = known->token;
        server.ca_file = known->ca_file;
    } else if (name.find("://") != std::string::npos) {
        server.url = name;
    } else {
        throw UserError(ExitCode::not_found, fmt::format("there is no remote '{}': kvmserver remote list lists them, "
                                                         "kvmserver login https://HOST:PORT adds one",
                                                         name));
    }
    return server;
}

std::optional<remote::Server> chosen_server(const Invocation& invocation) {
    const auto name = text(invocation, "remote");
    const auto token_file = text(invocation, "token-file"), ca_file = text(invocation, "cacert");
    if (!name) {
        for (const char* option : {"token-file", "cacert"})
            if (text(invocation, option))
                throw UserError(ExitCode::usage, fmt::format("--{} goes with --remote", option));
        return std::nullopt;
    }
    if (text(invocation, "store"))
        throw UserError(ExitCode::usage, "--store is of this host, --remote of another: give one of them");
    remote::Server server = server_named(*name);
    if (const std::string token = environment_variable("KVMSERVER_TOKEN"); !token.empty())
        server.token = token;
    if (token_file)
        server.token = remote::token_from_file(*token_file);
    if (ca_file)
        server.ca_file = *ca_file;
    if (const auto seconds = timeout(invocation))
        server.timeout_seconds = *seconds;
    return server;
}

std::unique_ptr<Connection> connect_there(remote::Server server, const std::filesystem::path& store, bool quiet,
                                          Context& context) {
    return std::make_unique<There>(std::move(server), store, quiet, context);
}

} // namespace kvmserver::cli::platform
