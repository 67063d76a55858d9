// The walls that `run` and `snaprun` put up around themselves (src/jail): they stand before the program's first
// instruction that they run.
#pragma once
#include "src/jail/enter.hpp"
#include "src/setup/setup.hpp"

namespace kvmserver {

class OwnJail {
public:
    // At the beginning, when this process has no other thread.
    explicit OwnJail(const Options& options) : mode_(options.jail), jail_(options.jail, jail::Namespaces::made) {}

    // All that is outside of the permissions has been opened, and there is again no other thread. `will_listen`: there
    // is more to listen on than what is open. Says which walls could not be had. Throws UserError.
    void enter(Setup& setup, const Options& options, bool will_listen);

private:
    jail::Mode mode_;
    jail::Jail jail_;
};

} // namespace kvmserver
