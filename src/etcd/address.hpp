// Where etcd is: etcd://HOST:PORT[,HOST:PORT...][/PREFIX][?tls=yes][&ca=FILE]
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace kvmserver::etcd {

struct Address {
    std::vector<std::string> endpoints; // "http://127.0.0.1:2379" or https://, at least one; members of one cluster
    std::string prefix = "kvmserver/";  // ends with '/'; every key that we read or write is below it
    std::string ca_file;                // trusted for the service's certificate; "": the system's authorities
    std::string text() const;           // for messages
};

// Throws UserError (usage): one line with what is wrong and the form to write.
Address parse_address(std::string_view text);

} // namespace kvmserver::etcd
