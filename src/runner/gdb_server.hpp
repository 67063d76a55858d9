// Waits for gdb at an address and lets it debug one machine (tinykvm/debug/session.hpp).
#pragma once
#include <memory>
#include <string>

#include "src/event_loop/stop.hpp"
#include "tinykvm/machine/machine.hpp"

namespace kvmserver {

// One client at a time. Whoever connects controls the machine, so only addresses of this host are listened at. If the
// client goes, the program goes on, and the next one may connect.
class GdbServer final : public tinykvm::Debugger, private tinykvm::debug::Channel {
public:
    // Listens: at "PORT", "127.0.0.1:PORT", "[::1]:PORT" (0: any free port), or "unix:PATH". Throws UserError,
    // HostError.
    GdbServer(const std::string& option, const std::string& address, const Stopper& stop);
    ~GdbServer() override;
    GdbServer(const GdbServer&) = delete;

    const std::string& command() const { return command_; }  // what to type in gdb: "target remote ..."
    const std::string& socket_path() const { return path_; } // "" for TCP
    void announce(const std::string& program) const;
    void ended(const tinykvm::Stop& stop); // tells the client

    tinykvm::debug::Resume stopped(tinykvm::Machine& machine, const tinykvm::debug::StopReason& reason) override;
    bool wants_stop() override;
    int fd() const override { return client_ ? client_.get() : listener_.get(); }
    bool breakpoint_at(std::uint64_t address) const override { return session_ && session_->breakpoint_at(address); }

private:
    bool send(std::string_view bytes) override;
    bool receive(std::string& out) override;
    bool receive_ready(std::string& out) override;
    bool wait_for(int fd, short events) const; // false: the process is to end
    bool accept_client();
    void hang_up();

    const Stopper& stop_;
    std::string command_, path_;
    tinykvm::UniqueFd listener_, client_;
    std::unique_ptr<tinykvm::debug::Session> session_;
    bool new_client_ = false; // that was not told of a stop yet
};

} // namespace kvmserver
