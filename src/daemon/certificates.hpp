// The certificates of the public listener: those of the store, chosen by the host that a client asks for, and one from
// files for all others.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "src/http/tls.hpp"
#include "src/store/functions/certificates.hpp"

namespace kvmserver::daemon {

// Thread-safe.
class Certificates {
public:
    // The files may be "": no certificate for others. `note` gets a line about one of the store that cannot be used.
    // Throws UserError that names a file.
    Certificates(store::Store& store, std::string chain_file, std::string key_file,
                 std::function<void(const std::string&)> note);
    // Reads the files again. Throws UserError; the old pair then stays in use.
    void read_files();
    // Reads those of the store if they have changed. Returns whether they have, since the first call too.
    bool read_store();
    // For new connections.
    http::TlsContext context() const;
    // Of the files. Seconds since 1970.
    std::optional<std::int64_t> expiry() const;
    std::map<std::string, std::int64_t> expiries() const; // of those of the store, by name

private:
    struct Known {
        store::Certificate certificate;
        http::TlsContext context; // null: it cannot be used
    };
    store::Store& store_;
    const std::string chain_file_, key_file_;
    const std::function<void(const std::string&)> note_;
    mutable std::mutex mutex_; // guards the following
    http::TlsContext files_;
    std::map<std::string, Known> known_; // by name
    std::optional<std::int64_t> data_version_, revision_;
    http::TlsContext all_;
};

} // namespace kvmserver::daemon
