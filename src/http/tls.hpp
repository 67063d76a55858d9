// The certificate of a TLS listener.
#pragma once
#include <memory>
#include <string>

namespace boost::asio::ssl {
class context;
}

namespace kvmserver::http {

using TlsContext = std::shared_ptr<boost::asio::ssl::context>;

// Throws UserError that names the file that is missing, malformed or does not match.
TlsContext load_certificate(const std::string& chain_file, const std::string& key_file);

} // namespace kvmserver::http
