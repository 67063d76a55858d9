// How many files this process and those that it starts may have open.
#pragma once

namespace kvmserver::daemon {

// To as many as the host lets an ordinary user have (RLIMIT_NOFILE): every connection, every machine and
// every piece of a snapshot needs one.
void raise_open_files();

} // namespace kvmserver::daemon
