// As whom we log in to etcd.
#pragma once
#include <string>

namespace kvmserver::etcd {

struct Credentials {
    std::string user, password; // both "": we do not log in
};

// Reads a file with one line USER:PASSWORD, which others may not read. Throws UserError (usage), which names the file
// and never contains a part of it.
Credentials read_credentials(const std::string& file);

} // namespace kvmserver::etcd
