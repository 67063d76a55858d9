// The certificate of a TLS listener.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace boost::asio::ssl {
class context;
}

namespace kvmserver::http {

using TlsContext = std::shared_ptr<boost::asio::ssl::context>;

// Throws UserError that names the file that is missing, malformed or does not match.
TlsContext load_certificate(const std::string& chain_file, const std::string& key_file);
// When the certificate (the first of the chain) expires, in seconds since 1970. Nothing if it does not say.
std::optional<std::int64_t> expiry_of(const TlsContext& context);

} // namespace kvmserver::http
