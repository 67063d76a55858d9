// `++ storage PROGRAM`: a second program, in a machine that keeps its state. The other machines of the process connect
// to what it listens on. Their bytes go from machine to machine in this process; no address of the host is involved.
#pragma once
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "src/event_loop/event_loop.hpp"
#include "src/setup/options.hpp"
#include "src/setup/setup.hpp"

namespace kvmserver {

// What the machines of a storage program leave behind.
struct StorageTotals {
    std::atomic<int> exit_code = 0; // not 0: a machine has ended by itself
    std::atomic<std::uint64_t> connections = 0, exits = 0;
};

// A machine on a thread of its own, which begins at once. It is never reset.
class StorageMachine final : public tinykvm::Neighbours, private Arrivals {
public:
    // If the program ends by itself, a line says so, and the process is asked to end. The references must outlive this
    // object. Throws HostError, UserError.
    StorageMachine(const Setup& setup, const std::shared_ptr<const tinykvm::MachineImage>& image, std::string name,
                   StorageTotals& totals);
    ~StorageMachine() override; // ends the machine
    StorageMachine(const StorageMachine&) = delete;
    StorageMachine& operator=(const StorageMachine&) = delete;

    tinykvm::UniqueFd connect(const Address& to, const Address& from) override;

private:
    int fd() const override { return wake_.get(); }
    bool next(IncomingConnection& out) override;
    void serve();
    void end(const tinykvm::Stop& stop);

    const std::string name_;
    StorageTotals& totals_;
    Stopper stop_;
    Listeners listeners_;
    tinykvm::UniqueFd wake_;
    EventLoop loop_;
    tinykvm::MachineEnv env_;
    std::unique_ptr<tinykvm::Machine> machine_;
    std::mutex mutex_;
    std::deque<IncomingConnection> arrived_; // guarded by it, as is:
    bool ended_ = false;
    std::thread thread_; // last: it uses the members above
};

class Storage {
public:
    // Finds the program. Throws UserError.
    explicit Storage(const Options& options);
    // Boots it until it waits for connections. False: it did not; exit_code() says how that ended, and lines were
    // printed. Throws HostError, UserError.
    bool boot();
    Setup& setup() { return *setup_; }
    int exit_code() const { return totals_.exit_code; } // not 0: a storage machine has ended by itself
    void print_stats();                                 // ends the first machine; the others must have ended

    // The machine of all, or with Options::one_to_one that of the booting program.
    tinykvm::Neighbours& first() { return *first_; }
    // Another machine, for one request machine. Null without Options::one_to_one. Any thread.
    std::unique_ptr<tinykvm::Neighbours> own();

private:
    const Options options_;
    std::unique_ptr<Setup> setup_;
    const std::string name_;
    StorageTotals totals_;
    std::shared_ptr<const tinykvm::MachineImage> image_;
    std::unique_ptr<StorageMachine> first_;
};

} // namespace kvmserver
