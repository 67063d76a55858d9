// The limit of open files of this process and those that it starts.
#pragma once

namespace kvmserver::daemon {

// Raises it to the hard limit (RLIMIT_NOFILE): every connection, every machine and every piece of a snapshot needs a
// descriptor.
void raise_open_files();

} // namespace kvmserver::daemon
