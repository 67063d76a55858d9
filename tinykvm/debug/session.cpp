#include "tinykvm/debug/session.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

namespace tinykvm::debug {
namespace {

constexpr std::byte kInt3{0xcc};
constexpr const char* kBadArguments = "E16"; // EINVAL in hexadecimal
constexpr const char* kNoAccess = "E0e";     // EFAULT
constexpr const char* kNoThread = "E03";     // ESRCH
constexpr int kTrap = 5, kInterrupted = 2;
constexpr std::uint64_t kPage = 4096;

// gdb has signal numbers of its own (gdb/include/gdb/signals.def).
int gdb_signal(int linux_signal) {
    constexpr std::pair<int, int> kDifferent[] = {{7, 10},  {10, 30}, {12, 31}, {17, 20}, {18, 19}, {19, 17},
                                                  {20, 18}, {23, 16}, {29, 23}, {30, 32}, {31, 12}};
    for (const auto& [theirs, gdbs] : kDifferent)
        if (theirs == linux_signal)
            return gdbs;
    constexpr int kUnknown = 143, kFirstRealTime = 32;
    return linux_signal < kFirstRealTime ? linux_signal : kUnknown;
}

// "ADDRESS,LENGTH" off the front.
bool take_range(std::string_view& text, std::uint64_t& at, std::uint64_t& length) {
    const auto first = take_number(text);
    if (!first || !take(text, ","))
        return false;
    const auto second = take_number(text);
    if (!second)
        return false;
    at = *first;
    length = *second;
    return true;
}

// A thread's number, or "-1" and "0" for any: 0.
std::optional<std::uint32_t> take_thread(std::string_view& text) {
    if (take(text, "-1"))
        return 0;
    const auto number = take_number(text);
    if (!number || *number > 0xffff'ffff)
        return std::nullopt;
    return static_cast<std::uint32_t>(*number);
}

} // namespace

bool Session::reply(std::string_view payload) {
    last_sent_ = framed(payload);
    return channel_.send(last_sent_);
}

bool Session::next_packet(std::string& out) {
    for (;;) {
        while (!events_.empty()) {
            PacketReader::Event event = std::move(events_.front());
            events_.pop_front();
            if (event.kind == PacketReader::Kind::packet) {
                out = std::move(event.payload);
                return !acknowledge_ || channel_.send("+");
            }
            // The program is stopped, so an interrupt means nothing.
            if (event.kind == PacketReader::Kind::damaged && acknowledge_ && !channel_.send("-"))
                return false;
            if (event.kind == PacketReader::Kind::repeat && !last_sent_.empty() && !channel_.send(last_sent_))
                return false;
        }
        std::string bytes;
        if (!channel_.receive(bytes))
            return false;
        std::vector<PacketReader::Event> events;
        reader_.feed(bytes, events);
        std::ranges::move(events, std::back_inserter(events_));
    }
}

Resume Session::stopped(Target& target, const StopReason& reason) {
    reason_ = reason;
    resume_.reset();
    chosen_ = 0;
    bool there = !running_ || reply(stop_reply(target)); // else the client asks by itself
    running_ = false;
    while (there && !resume_) {
        std::string packet;
        there = next_packet(packet);
        if (!there)
            break;
        const std::string answered = answer(target, packet);
        if (!resume_ || resume_->kind == Resume::Kind::detach)
            there = reply(answered);
        if (packet == "QStartNoAckMode")
            acknowledge_ = false;
    }
    if (!resume_ || resume_->kind == Resume::Kind::detach) {
        remove_breakpoints(target);
        return {Resume::Kind::detach};
    }
    running_ = true;
    return *resume_;
}

bool Session::asks_to_stop() {
    std::string bytes;
    if (!channel_.receive_ready(bytes))
        return true; // stopped() will find that the client has gone
    std::vector<PacketReader::Event> events;
    reader_.feed(bytes, events);
    std::ranges::move(events, std::back_inserter(events_)); // after what came along with the last packet
    const auto asks = [](const PacketReader::Event& event) { return event.kind == PacketReader::Kind::interrupt; };
    return std::erase_if(events_, asks) > 0;
}

void Session::exited(int status) {
    if (running_ && !ended_)
        reply(fmt::format("W{:02x}", status & 0xff));
    ended_ = true;
}

void Session::died_of(int signal) {
    if (running_ && !ended_)
        reply(fmt::format("X{:02x}", gdb_signal(signal)));
    ended_ = true;
}

std::string Session::stop_reply(Target& target) const {
    int signal = kTrap;
    if (reason_.kind == StopReason::Kind::asked)
        signal = kInterrupted;
    else if (reason_.kind == StopReason::Kind::signal)
        signal = gdb_signal(reason_.signal);
    const auto threads = target.threads();
    return fmt::format("T{:02x}{}{}", signal,
                       threads.empty() ? std::string() : fmt::format("thread:{:x};", threads.front().id),
                       reason_.kind == StopReason::Kind::breakpoint ? "swbreak:;" : "");
}

std::uint32_t Session::chosen(Target& target) {
    if (chosen_ != 0)
        return chosen_;
    const auto threads = target.threads();
    return threads.empty() ? 0 : threads.front().id;
}

const RegisterMap& Session::registers(Target& target) {
    if (!registers_)
        registers_.emplace(target.vector_components());
    return *registers_;
}

std::string Session::answer(Target& target, std::string_view packet) {
    if (packet.empty())
        return "";
    const std::string_view rest = packet.substr(1);
    switch (packet.front()) {
    case '?': return stop_reply(target);
    case 'g': return all_registers(target);
    case 'G': return set_all_registers(target, rest);
    case 'p': return one_register(target, rest, false);
    case 'P': return one_register(target, rest, true);
    case 'm': return read_memory(target, rest);
    case 'M': return write_memory(target, rest, false);
    case 'X': return write_memory(target, rest, true);
    case 'Z': return breakpoint(target, rest, true);
    case 'z': return breakpoint(target, rest, false);
    case 'H': return choose_thread(target, rest);
    case 'c':
    case 's':
    case 'C':
    case 'S': return resume_one(packet.front(), rest);
    case 'k': resume_ = {Resume::Kind::kill}; return "";
    case 'D': resume_ = {Resume::Kind::detach}; return "OK";
    case 'T': {
        std::string_view text = rest;
        const auto id = take_thread(text);
        const auto threads = target.threads();
        return id && std::ranges::find(threads, *id, &ThreadInfo::id) != threads.end() ? "OK" : kNoThread;
    }
    case 'q':
    case 'Q': return query(target, packet);
    case 'v':
        if (packet == "vCont?")
            return "vCont;c;C;s;S";
        if (packet.starts_with("vCont;"))
            return resume_by_threads(target, packet.substr(5));
        if (packet.starts_with("vKill")) {
            resume_ = {Resume::Kind::kill};
            reply("OK");
        }
        return "";
    default: return ""; // not supported
    }
}

std::string Session::query(Target& target, std::string_view packet) {
    if (packet.starts_with("qSupported"))
        return fmt::format("PacketSize={:x};swbreak+;vContSupported+;QStartNoAckMode+;qXfer:features:read+;"
                           "qXfer:auxv:read+;qXfer:exec-file:read+",
                           kMaxPayload - 16);
    if (packet == "QStartNoAckMode")
        return "OK";
    if (packet == "qAttached" || packet.starts_with("qAttached:"))
        return "0"; // gdb ends the program when it ends
    if (packet == "qC")
        return fmt::format("QC{:x}", chosen(target));
    if (packet == "qfThreadInfo") {
        std::string out = "m";
        for (const ThreadInfo& thread : target.threads()) {
            if (out.size() > kMaxPayload / 2)
                break;
            out += fmt::format("{}{:x}", out.size() == 1 ? "" : ",", thread.id);
        }
        return out.size() == 1 ? "l" : out;
    }
    if (packet == "qsThreadInfo")
        return "l";
    if (std::string_view text = packet; take(text, "qThreadExtraInfo,")) {
        const auto id = take_thread(text);
        const auto threads = target.threads();
        const auto at = id ? std::ranges::find(threads, *id, &ThreadInfo::id) : threads.end();
        return at == threads.end() ? kNoThread : to_hex(at->name);
    }
    if (std::string_view text = packet; take(text, "qXfer:"))
        return transfer(target, text);
    if (packet.starts_with("qSymbol"))
        return "OK";
    return "";
}

std::string Session::transfer(Target& target, std::string_view packet) {
    std::string object;
    if (take(packet, "features:read:target.xml:")) {
        object = registers(target).description();
    } else if (take(packet, "auxv:read::")) {
        const std::vector<std::byte> bytes = target.auxiliary_vector();
        object.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    } else if (take(packet, "exec-file:read:")) {
        const std::size_t colon = packet.find(':'); // after the process's number
        if (colon == packet.npos)
            return kBadArguments;
        packet.remove_prefix(colon + 1);
        object = target.program();
    } else {
        return packet.starts_with("features:read:") ? "E00" : "";
    }
    std::uint64_t offset = 0, length = 0;
    if (!take_range(packet, offset, length))
        return kBadArguments;
    if (offset >= object.size())
        return "l";
    length =
        std::min({length, object.size() - offset, std::uint64_t{kMaxPayload / 4}}); // escaped, it may be twice that
    return (offset + length == object.size() ? "l" : "m") + escaped(std::string_view(object).substr(offset, length));
}

std::string Session::read_memory(Target& target, std::string_view arguments) {
    std::uint64_t at = 0, length = 0;
    if (!take_range(arguments, at, length))
        return kBadArguments;
    std::vector<std::byte> bytes(std::min<std::uint64_t>(length, kMaxPayload / 2));
    std::size_t have = 0;
    while (have < bytes.size()) { // what can be read before an unmapped page
        const std::size_t n = std::min<std::size_t>(bytes.size() - have, kPage - (at + have) % kPage);
        if (at + have < at || !target.read(at + have, std::span(bytes).subspan(have, n)))
            break;
        have += n;
    }
    if (have == 0 && length != 0)
        return kNoAccess;
    bytes.resize(have);
    for (auto b = breakpoints_.lower_bound(at); b != breakpoints_.end() && b->first - at < have; ++b)
        bytes[b->first - at] = b->second;
    return to_hex(bytes);
}

std::string Session::write_memory(Target& target, std::string_view arguments, bool binary) {
    std::uint64_t at = 0, length = 0;
    if (!take_range(arguments, at, length) || !take(arguments, ":"))
        return kBadArguments;
    std::vector<std::byte> bytes;
    if (binary) {
        const auto raw = std::as_bytes(std::span(arguments));
        bytes.assign(raw.begin(), raw.end());
    } else if (auto hex = from_hex(arguments)) {
        bytes = std::move(*hex);
    }
    if (bytes.size() != length || at + length < at)
        return kBadArguments;
    // Breakpoints stay: what is written there is what they hide.
    auto shown = bytes;
    for (auto b = breakpoints_.lower_bound(at); b != breakpoints_.end() && b->first - at < length; ++b)
        shown[b->first - at] = kInt3;
    if (!target.write(at, shown))
        return kNoAccess;
    for (auto b = breakpoints_.lower_bound(at); b != breakpoints_.end() && b->first - at < length; ++b)
        b->second = bytes[b->first - at];
    return "OK";
}

std::string Session::breakpoint(Target& target, std::string_view arguments, bool insert) {
    constexpr std::size_t kMaxBreakpoints = 10000;
    if (!take(arguments, "0,")) // only those in software
        return "";
    const auto at = take_number(arguments);
    if (!at)
        return kBadArguments;
    const auto there = breakpoints_.find(*at);
    if (!insert) {
        if (there == breakpoints_.end())
            return "OK";
        const bool restored = target.write(*at, std::span(&there->second, 1));
        breakpoints_.erase(there); // also where the memory is gone
        return restored ? "OK" : kNoAccess;
    }
    if (there != breakpoints_.end())
        return "OK";
    std::byte before;
    if (breakpoints_.size() >= kMaxBreakpoints || !target.read(*at, std::span(&before, 1)) ||
        !target.write(*at, std::span(&kInt3, 1)))
        return kNoAccess;
    breakpoints_.emplace(*at, before);
    return "OK";
}

void Session::remove_breakpoints(Target& target) {
    for (const auto& [at, before] : breakpoints_)
        target.write(at, std::span(&before, 1)); // false where the memory is gone
    breakpoints_.clear();
}

std::string Session::all_registers(Target& target) {
    Registers values;
    if (!target.registers(chosen(target), values))
        return kNoThread;
    std::string out;
    const RegisterMap& map = registers(target);
    for (std::size_t i = 0; i < map.count(); ++i)
        out += to_hex(map.get(values, i));
    return out;
}

std::string Session::set_all_registers(Target& target, std::string_view text) {
    Registers values;
    const auto bytes = from_hex(text);
    if (!bytes)
        return kBadArguments;
    if (!target.registers(chosen(target), values))
        return kNoThread;
    const RegisterMap& map = registers(target);
    if (bytes->size() != map.all_bytes())
        return kBadArguments;
    std::span<const std::byte> left(*bytes);
    for (std::size_t i = 0; i < map.count(); ++i) {
        map.set(values, i, left.first(map.bytes(i)));
        left = left.subspan(map.bytes(i));
    }
    return target.set_registers(chosen(target), values) ? "OK" : kBadArguments;
}

std::string Session::one_register(Target& target, std::string_view text, bool set) {
    const auto number = take_number(text);
    const RegisterMap& map = registers(target);
    if (!number || *number >= map.count())
        return kBadArguments;
    Registers values;
    if (!target.registers(chosen(target), values))
        return kNoThread;
    if (!set)
        return to_hex(map.get(values, *number));
    const auto bytes = take(text, "=") ? from_hex(text) : std::nullopt;
    if (!bytes || bytes->size() != map.bytes(*number))
        return kBadArguments;
    map.set(values, *number, *bytes);
    return target.set_registers(chosen(target), values) ? "OK" : kBadArguments;
}

std::string Session::choose_thread(Target& target, std::string_view text) {
    if (text.empty())
        return kBadArguments;
    const char of = text.front();
    text.remove_prefix(1);
    const auto id = take_thread(text);
    if (!id)
        return kBadArguments;
    const auto threads = target.threads();
    if (*id != 0 && std::ranges::find(threads, *id, &ThreadInfo::id) == threads.end())
        return kNoThread;
    if (of == 'g')
        chosen_ = *id;
    return "OK";
}

std::string Session::resume_one(char action, std::string_view rest) {
    Resume resume;
    if (action == 's' || action == 'S')
        resume.kind = Resume::Kind::step;
    if (action == 'C' || action == 'S') {
        const auto signal = take_number(rest);
        resume.with_signal = signal && *signal != 0;
    } else if (!rest.empty()) { // at another address
        return kBadArguments;
    }
    resume.thread = chosen_;
    resume_ = resume;
    return "";
}

// ";ACTION[:THREAD]...", of which the first that fits a thread counts for it.
std::string Session::resume_by_threads(Target& target, std::string_view actions) {
    Resume resume;
    resume.others_wait = true;
    bool known = false;
    while (take(actions, ";")) {
        if (actions.empty())
            return kBadArguments;
        const char action = actions.front();
        actions.remove_prefix(1);
        if (action == 'C' || action == 'S') {
            const auto signal = take_number(actions);
            if (!signal)
                return kBadArguments;
            resume.with_signal |= *signal != 0;
        } else if (action != 'c' && action != 's') {
            return kBadArguments;
        }
        std::optional<std::uint32_t> thread = 0;
        if (take(actions, ":"))
            thread = take_thread(actions);
        if (!thread)
            return kBadArguments;
        if ((action == 's' || action == 'S') && !known) {
            resume.kind = Resume::Kind::step;
            resume.thread = *thread ? *thread : chosen(target);
        }
        known = true;
        resume.others_wait &= *thread != 0;
    }
    if (!known || !actions.empty())
        return kBadArguments;
    resume_ = resume;
    return "";
}

} // namespace tinykvm::debug
