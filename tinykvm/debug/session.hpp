// A conversation with gdb by its remote protocol (gdb manual, appendix E), about a program that stops and goes on as a
// whole (all-stop).
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>

#include "tinykvm/debug/packet.hpp"
#include "tinykvm/debug/registers.hpp"
#include "tinykvm/debug/target.hpp"

namespace tinykvm::debug {

// The client's bytes. Functions return false when the client has gone, or when nobody is to wait for it any longer.
class Channel {
public:
    virtual ~Channel() = default;
    virtual bool send(std::string_view bytes) = 0;
    virtual bool receive(std::string& out) = 0;       // waits for at least one byte
    virtual bool receive_ready(std::string& out) = 0; // does not wait; `out` may stay empty
};

struct StopReason {
    enum class Kind {
        first,      // before the first instruction, or at the arrival of a request
        asked,      // Ctrl-C
        stepped,    // one instruction was executed
        breakpoint, // RIP is at it
        signal,     // the program is about to die of `signal`
    };
    Kind kind = Kind::first;
    int signal = 0; // Linux's number
};

struct Resume {
    enum class Kind { go_on, step, detach, kill };
    Kind kind = Kind::go_on;
    std::uint32_t thread = 0; // that steps
    bool others_wait = false; // while it does
    bool with_signal = false; // after StopReason::Kind::signal: the program gets it
};

class Session {
public:
    explicit Session(Channel& channel) : channel_(channel) {}

    // The program has stopped: talks until it is to go on. If the client goes, its breakpoints are removed and the
    // result is `detach`.
    Resume stopped(Target& target, const StopReason& reason);
    // While the program runs: whether the client wants it to stop.
    bool asks_to_stop();
    void exited(int status);  // the program has ended
    void died_of(int signal); // by Linux's number
    bool breakpoint_at(std::uint64_t address) const { return breakpoints_.contains(address); }

private:
    // The reply to a packet. Sets `resume_` if the program is to go on.
    std::string answer(Target& target, std::string_view packet);
    std::string query(Target& target, std::string_view packet);
    std::string transfer(Target& target, std::string_view packet);
    std::string read_memory(Target& target, std::string_view arguments);
    std::string write_memory(Target& target, std::string_view arguments, bool binary);
    std::string breakpoint(Target& target, std::string_view arguments, bool insert);
    std::string all_registers(Target& target);
    std::string set_all_registers(Target& target, std::string_view text);
    std::string one_register(Target& target, std::string_view text, bool set);
    std::string choose_thread(Target& target, std::string_view text);
    std::string resume_by_threads(Target& target, std::string_view actions);
    std::string resume_one(char action, std::string_view rest);
    std::string stop_reply(Target& target) const;
    bool next_packet(std::string& out);
    bool reply(std::string_view payload);
    void remove_breakpoints(Target& target);
    std::uint32_t chosen(Target& target);
    const RegisterMap& registers(Target& target);

    Channel& channel_;
    PacketReader reader_;
    std::deque<PacketReader::Event> events_;
    std::string last_sent_;
    bool acknowledge_ = true, running_ = false, ended_ = false;
    std::map<std::uint64_t, std::byte> breakpoints_; // the byte that INT3 replaced
    std::optional<RegisterMap> registers_;
    std::uint32_t chosen_ = 0; // by Hg; 0: the one that stopped
    StopReason reason_;
    std::optional<Resume> resume_;
};

} // namespace tinykvm::debug
