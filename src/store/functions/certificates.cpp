#include "src/store/functions/certificates.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/common/clock.hpp"
#include "src/store/errors.hpp"
#include "src/store/functions/settings_record.hpp"
#include "tinykvm/base/text.hpp"

namespace kvmserver::store {

namespace {

void check_certificate_name(const std::string& name) {
    const auto fits = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' || c == '*';
    };
    if (name.empty() || name.size() > 253 || !std::ranges::all_of(name, fits))
        throw BadValue(
            fmt::format("certificate \"{}\": its name may have 1 to 253 of a-z 0-9 - . _ *", tinykvm::brief(name)));
}

// sqlite_sequence has the last id ever given: it grows with each row that is put, and the count falls with each that is
// removed.
constexpr const char* kRevision = "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'certificate'), 0) "
                                  "* 65536 + (SELECT count(*) FROM certificate)";

} // namespace

std::int64_t Certificates::put(const std::string& name, const std::string& chain, const std::string& key) {
    check_certificate_name(name);
    if (chain.size() + key.size() > kMaxCertificateBytes)
        throw BadValue(
            fmt::format("certificate {}: chain and key have more than {} bytes", name, kMaxCertificateBytes));
    SettingsChange change(store_);
    change.database().prepare("DELETE FROM certificate WHERE name = ?").bind(name).run();
    const std::int64_t others =
        change.database().number("SELECT coalesce(sum(length(chain) + length(private_key)), 0) FROM certificate");
    if (static_cast<std::size_t>(others) + chain.size() + key.size() > kMaxCertificatesBytes)
        throw BadValue(
            fmt::format("the store's certificates would have more than {} MiB, the most that it keeps; remove "
                        "some, or use those that name several hosts or a wildcard",
                        kMaxCertificatesBytes >> 20));
    const std::int64_t now = now_ms();
    change.database()
        .prepare("INSERT INTO certificate (name, chain, private_key, changed) VALUES (?, ?, ?, ?)")
        .bind(name)
        .bind(chain)
        .bind(key)
        .bind(now)
        .run();
    change.commit();
    return now;
}

void Certificates::remove(const std::string& name) {
    SettingsChange change(store_);
    change.database().prepare("DELETE FROM certificate WHERE name = ?").bind(name).run();
    if (change.database().changes() == 0)
        throw NotFound(
            fmt::format("there is no certificate {}: `kvmserver certificate list` lists them", tinykvm::brief(name)));
    change.commit();
}

std::vector<Certificate> Certificates::list() {
    auto index = store_.index();
    std::vector<Certificate> all;
    auto rows = index->prepare("SELECT name, chain, private_key, changed FROM certificate ORDER BY id");
    while (rows.step())
        all.push_back({rows.text(0), rows.text(1), rows.text(2), rows.integer(3)});
    return all;
}

std::int64_t Certificates::revision() { return store_.index()->number(kRevision); }

} // namespace kvmserver::store
