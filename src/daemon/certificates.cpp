#include "src/daemon/certificates.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "tinykvm/base/error.hpp"

namespace kvmserver::daemon {

Certificates::Certificates(store::Store& store, std::string chain_file, std::string key_file,
                           std::function<void(const std::string&)> note)
    : store_(store), chain_file_(std::move(chain_file)), key_file_(std::move(key_file)), note_(std::move(note)) {
    read_files();
    read_store();
}

void Certificates::read_files() {
    if (chain_file_.empty())
        return;
    auto files = http::load_certificate(chain_file_, key_file_);
    const std::lock_guard lock(mutex_);
    files_ = std::move(files);
    revision_.reset(); // so that the next read_store() puts it in place
    data_version_.reset();
}

bool Certificates::read_store() {
    const std::lock_guard lock(mutex_);
    const std::int64_t data_version = store_.data_version();
    if (data_version_ == data_version)
        return false;
    store::Certificates stored(store_);
    const std::int64_t revision = stored.revision();
    if (revision_ == revision) {
        data_version_ = data_version;
        return false;
    }
    std::map<std::string, Known> known;
    std::vector<http::TlsContext> usable;
    for (store::Certificate& certificate : stored.list()) {
        const auto before = known_.find(certificate.name);
        http::TlsContext context;
        if (before != known_.end() && before->second.certificate == certificate)
            context = before->second.context;
        else
            try {
                context = http::certificate_from(certificate.chain, certificate.key,
                                                 fmt::format("certificate {}", certificate.name));
            } catch (const tinykvm::UserError& error) { // this build's OpenSSL may be stricter
                note_(error.what());
            }
        if (context)
            usable.push_back(context);
        std::string name = certificate.name;
        known.emplace(std::move(name), Known{std::move(certificate), std::move(context)});
    }
    all_ = http::by_host(usable, files_);
    known_ = std::move(known);
    revision_ = revision; // only now: after a failure the next call reads again
    data_version_ = data_version;
    return true;
}

http::TlsContext Certificates::context() const {
    const std::lock_guard lock(mutex_);
    return all_;
}

std::optional<std::int64_t> Certificates::expiry() const {
    const std::lock_guard lock(mutex_);
    return http::expiry_of(files_);
}

std::map<std::string, std::int64_t> Certificates::expiries() const {
    const std::lock_guard lock(mutex_);
    std::map<std::string, std::int64_t> all;
    for (const auto& [name, known] : known_)
        if (const auto expiry = http::expiry_of(known.context))
            all[name] = *expiry;
    return all;
}

} // namespace kvmserver::daemon
