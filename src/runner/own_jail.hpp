// The jail that `run` and `snaprun` put around themselves (src/jail) before they run the program's first instruction.
#pragma once
#include "src/jail/enter.hpp"
#include "src/setup/setup.hpp"

namespace kvmserver {

class OwnJail {
public:
    // Call first, while this process has no other thread.
    explicit OwnJail(const Options& options) : mode_(options.jail), jail_(options.jail, jail::Namespaces::made) {}

    // Call when everything outside of the permissions has been opened and there is again no other thread.
    // `will_listen`: more sockets will be opened to listen on. `storage`: the second program's, which may need more.
    // Reports which walls are missing. Throws UserError.
    void enter(Setup& setup, const Options& options, bool will_listen, Setup* storage = nullptr);

private:
    jail::Mode mode_;
    jail::Jail jail_;
};

} // namespace kvmserver
