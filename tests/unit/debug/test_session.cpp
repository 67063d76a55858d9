// The conversation with gdb, with a program that is none.
#include "tinykvm/debug/session.hpp"

#include <random>

#include "tests/catch.hpp"
#include "tests/unit/debug/fake_target.hpp"

using namespace tinykvm::debug;
using tinykvm::debug::test::FakeTarget;
using Reason = StopReason::Kind;

namespace {

// A client that has said all that it will say.
class Script final : public Channel {
public:
    void say(std::string_view payload) { to_come_ += framed(payload); }
    void raw(std::string_view bytes) { to_come_ += bytes; }
    std::vector<std::string> replies() const {
        PacketReader reader;
        std::vector<PacketReader::Event> events;
        reader.feed(sent_, events);
        std::vector<std::string> out;
        for (const auto& event : events)
            if (event.kind == PacketReader::Kind::packet)
                out.push_back(event.payload);
        return out;
    }
    const std::string& sent() const { return sent_; }

private:
    bool send(std::string_view bytes) override {
        sent_ += bytes;
        return true;
    }
    bool receive(std::string& out) override {
        out = std::exchange(to_come_, "");
        return !out.empty();
    }
    bool receive_ready(std::string& out) override { return receive(out) || true; }
    std::string sent_, to_come_;
};

struct World {
    FakeTarget target;
    Script script;
    Session session{script};
    Resume stop(Reason reason = Reason::first, int signal = 0) { return session.stopped(target, {reason, signal}); }
    // The reply to one packet.
    std::string ask(std::string_view packet) {
        const std::size_t before = script.replies().size();
        script.say(packet);
        stop();
        const auto replies = script.replies();
        return replies.size() > before ? replies[before] : "(none)";
    }
};

} // namespace

TEST_CASE("memory is read as far as it goes, and written") {
    World w;
    CHECK(w.ask("m10001,3") == "010203");
    CHECK(w.ask("m11ffe,8") == "feff");
    CHECK(w.ask("m0,4") == "E0e");
    CHECK(w.ask("mffffffffffffffff,10") == "E0e");
    CHECK(w.ask("M10001,2:abcd") == "OK");
    CHECK(w.ask("X10003,2:#\x03") == "(none)"); // not escaped: the packet ends at the first #
    CHECK(w.target.memory[1] == std::byte{0xab});
    w.script.raw(framed("X10003,2:" + escaped("#}")));
    w.stop();
    CHECK(w.target.memory[3] == std::byte{'#'});
    CHECK(w.target.memory[4] == std::byte{'}'});
    for (const char* bad : {"m", "m1", "m1,", "mx,1", "M10000,2:ab", "M10000,2", "M10000,1:zz", "X10000,5:ab"})
        CHECK(w.ask(bad) == "E16");
}

TEST_CASE("breakpoints are in memory and not in what is read") {
    World w;
    w.script.say("Z0,10010,1");
    w.script.say("Z0,10010,1");
    w.script.say("m1000f,3");
    w.script.say("M1000f,3:0a0b0c");
    w.script.say("vCont;c");
    CHECK(w.stop().kind == Resume::Kind::go_on);
    CHECK(w.script.replies() == std::vector<std::string>{"OK", "OK", "0f1011", "OK"});
    CHECK(w.target.memory[0x10] == std::byte{0xcc});
    CHECK(w.session.breakpoint_at(0x10010));
    w.script.say("z0,10010,1");
    w.script.say("vCont;c");
    w.stop(Reason::breakpoint);
    CHECK(w.target.memory[0x10] == std::byte{0x0b});
    CHECK(!w.session.breakpoint_at(0x10010));
    CHECK(w.script.replies()[4] == "T05thread:1a;swbreak:;");
}

TEST_CASE("a client that goes or detaches leaves no breakpoints") {
    for (const bool says_so : {true, false}) {
        World w;
        w.script.say("Z0,10010,1");
        if (says_so)
            w.script.say("D");
        CHECK(w.stop().kind == Resume::Kind::detach);
        CHECK(w.target.memory[0x10] == std::byte{0x10});
        CHECK(!w.session.breakpoint_at(0x10010));
    }
}

TEST_CASE("how the program goes on") {
    const auto after = [](std::string_view packet) {
        World w;
        w.script.say(packet);
        return w.stop();
    };
    CHECK(after("c").kind == Resume::Kind::go_on);
    CHECK(after("s").kind == Resume::Kind::step);
    CHECK(after("k").kind == Resume::Kind::kill);
    CHECK(!after("vCont;C00").with_signal);
    CHECK(after("vCont;C0b").with_signal);
    const Resume alone = after("vCont;s:1b");
    CHECK((alone.kind == Resume::Kind::step && alone.thread == 0x1b && alone.others_wait));
    const Resume among = after("vCont;s:1b;c");
    CHECK((among.kind == Resume::Kind::step && among.thread == 0x1b && !among.others_wait));
    for (const char* bad : {"vCont;", "vCont;x", "vCont;c:", "vCont;C", "vCont;cc", "c1000"})
        CHECK(after(bad).kind == Resume::Kind::detach); // the client goes after the error
}

TEST_CASE("threads and registers") {
    World w;
    CHECK(w.ask("qfThreadInfo") == "m1a,1b");
    CHECK(w.ask("qThreadExtraInfo,1b") == to_hex("other"));
    CHECK(w.ask("T1b") == "OK");
    CHECK(w.ask("T1c") == "E03");
    CHECK(w.ask("Hg1c") == "E03");
    w.target.values[1].general.rax = 0x1122;
    w.script.say("Hg1b");
    w.script.say("p0");
    w.script.say("P0=0807060504030201");
    w.script.say("g");
    w.stop();
    const auto replies = w.script.replies();
    CHECK(replies[replies.size() - 3] == "2211000000000000");
    CHECK(w.target.values[1].general.rax == 0x0102030405060708);
    CHECK(w.target.values[0].general.rax == 0);
    CHECK(replies.back().starts_with("0807060504030201"));
    CHECK(w.ask("G" + replies.back()) == "OK");
    CHECK(w.target.values[0].general.rax == 0x0102030405060708);
    for (const char* bad : {"p", "pfff", "P0", "P0=12", "Gzz", "G00", "H"})
        CHECK(w.ask(bad) == "E16");
}

TEST_CASE("objects are sent in pieces, escaped") {
    World w;
    CHECK(w.ask("qXfer:exec-file:read::0,100") == "l/bin/fake");
    CHECK(w.ask("qXfer:exec-file:read:1a:5,3") == "mfak");
    CHECK(w.ask("qXfer:auxv:read::0,1000") == "l" + std::string(32, '}'));
    CHECK(w.ask("qXfer:auxv:read::40,1000") == "l");
    CHECK(w.ask("qXfer:features:read:target.xml:0,5") == "m<?xml");
    CHECK(w.ask("qXfer:features:read:other.xml:0,5") == "E00");
    CHECK(w.ask("qXfer:memory-map:read::0,5").empty());
    CHECK(w.ask("qXfer:exec-file:read").empty());
    CHECK(w.ask("qXfer:exec-file:read:") == "E16");
}

TEST_CASE("why the program stopped is told when it was running") {
    World w;
    w.script.say("?");
    w.script.say("c");
    w.stop();
    w.script.say("c");
    w.stop(Reason::asked);
    w.script.say("c");
    w.stop(Reason::signal, 7);
    w.session.exited(3);
    w.session.exited(3);
    CHECK(w.script.replies() == std::vector<std::string>{"T05thread:1a;", "T02thread:1a;", "T0athread:1a;", "W03"});
}

TEST_CASE("an interrupt while the program runs") {
    World w;
    w.script.say("c");
    w.stop();
    CHECK(!w.session.asks_to_stop());
    w.script.raw("\x03");
    CHECK(w.session.asks_to_stop());
    w.script.raw(framed("c") + "\x03"); // in one piece
    w.stop();
    CHECK(w.session.asks_to_stop());
    CHECK(!w.session.asks_to_stop());
}

TEST_CASE("acknowledgements end when the client says so") {
    World w;
    w.script.say("QStartNoAckMode");
    w.script.say("?");
    w.script.raw("$?#00");
    w.stop();
    CHECK(w.script.sent() == "+" + framed("OK") + framed("T05thread:1a;"));
}

TEST_CASE("no packet breaks it") {
    std::mt19937 random(7);
    const std::string_view letters = "mMXgGpPZzHcsCSkDTqQv?0123456789abcdefx,;:=#}*$-ThreadInfoXferCont";
    for (int round = 0; round < 3000; ++round) {
        World w;
        for (int n = 0; n < 10; ++n) {
            std::string packet(1, letters[random() % 22]);
            for (unsigned length = random() % 24; length > 0; --length)
                packet += random() % 8 ? letters[random() % letters.size()] : static_cast<char>(random());
            if (random() % 2)
                w.script.say(packet);
            else
                w.script.raw(framed(escaped(packet)));
        }
        w.stop();
        w.session.asks_to_stop();
    }
}
