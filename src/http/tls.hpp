// The certificates of a TLS listener.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace boost::asio::ssl {
class context;
}

namespace kvmserver::http {

using TlsContext = std::shared_ptr<boost::asio::ssl::context>;

// Throws UserError that names the file that is missing, malformed or does not match.
TlsContext load_certificate(const std::string& chain_file, const std::string& key_file);
// The same from PEM texts. `name`: for messages. Throws UserError (usage).
TlsContext certificate_from(const std::string& chain, const std::string& key, const std::string& name);
// The names of hosts that a certificate is for, in lower case: "www.example.org", "*.example.org".
std::vector<std::string> hosts_of(const TlsContext& context);
// Presents to each client the certificate for the host that it asks for (SNI): one for the very host before one for
// "*." and the rest of its name; of several the last. `other` is for all other clients; without it they are refused.
TlsContext by_host(const std::vector<TlsContext>& certificates, TlsContext other);
// For connections to other servers, whose certificates must be of the host's authorities, or of those in a PEM file.
// Throws UserError.
TlsContext client_context(const std::string& authorities);
// When the certificate (the first of the chain) expires, in seconds since 1970. Nothing if it does not say.
std::optional<std::int64_t> expiry_of(const TlsContext& context);

} // namespace kvmserver::http
