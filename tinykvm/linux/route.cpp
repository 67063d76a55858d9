// Answers the requests of netlink route sockets (rtnetlink(7)): links and addresses, read-only. The socket itself is in
// the guest kernel.
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <net/if_arp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "tinykvm/linux/arguments.hpp"
#include "tinykvm/linux/handlers.hpp"
#include "tinykvm/linux/interfaces.hpp"
#include "tinykvm/linux/policy.hpp"

namespace tinykvm {

namespace {

constexpr std::size_t kMaxRequest = 4096, kMaxReply = 1 << 20;
constexpr std::uint16_t kFirstType = 16; // NLMSG_MIN_TYPE; lower types are control messages

// Builds a sequence of messages, each padded to four bytes.
class Messages {
public:
    template <class Body>
    void begin(std::uint16_t type, std::uint16_t flags, std::uint32_t sequence, std::uint32_t port, const Body& body) {
        begin_ = bytes_.size();
        nlmsghdr header{};
        header.nlmsg_type = type;
        header.nlmsg_flags = flags;
        header.nlmsg_seq = sequence;
        header.nlmsg_pid = port;
        append(&header, sizeof(header));
        append(&body, sizeof(body));
    }
    void attribute(std::uint16_t type, const void* data, std::size_t bytes) {
        const rtattr header{static_cast<unsigned short>(RTA_LENGTH(bytes)), type};
        append(&header, sizeof(header));
        append(data, bytes);
    }
    void text(std::uint16_t type, const std::string& value) { attribute(type, value.c_str(), value.size() + 1); }
    void number(std::uint16_t type, std::uint32_t value) { attribute(type, &value, sizeof(value)); }
    void more(const void* data, std::size_t bytes) { append(data, bytes); }
    void end() {
        const auto length = static_cast<std::uint32_t>(bytes_.size() - begin_);
        std::memcpy(bytes_.data() + begin_ + offsetof(nlmsghdr, nlmsg_len), &length, sizeof(length));
    }
    const std::vector<std::byte>& bytes() const { return bytes_; }

private:
    void append(const void* data, std::size_t bytes) {
        const auto* from = static_cast<const std::byte*>(data);
        bytes_.insert(bytes_.end(), from, from + bytes);
        bytes_.resize(NLMSG_ALIGN(bytes_.size()));
    }
    std::vector<std::byte> bytes_;
    std::size_t begin_ = 0;
};

struct Request {
    nlmsghdr header{};
    std::span<const std::byte> all, body;
    std::uint32_t port = 0;
    bool dump() const { return (header.nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP; }
};

void put_link(Messages& out, const Request& request, const Interface& i, std::uint16_t flags) {
    ifinfomsg info{};
    info.ifi_type = i.type;
    info.ifi_index = static_cast<int>(i.index);
    info.ifi_flags = i.flags;
    out.begin(RTM_NEWLINK, flags, request.header.nlmsg_seq, request.port, info);
    out.text(IFLA_IFNAME, i.name);
    out.number(IFLA_TXQLEN, i.queue);
    const std::uint8_t state = i.flags & IFF_LOOPBACK ? 0 : i.flags & IFF_RUNNING ? 6 : 2; // unknown, up, down
    out.attribute(IFLA_OPERSTATE, &state, sizeof(state));
    out.number(IFLA_MTU, i.mtu);
    if (i.type == ARPHRD_ETHER || i.type == ARPHRD_LOOPBACK) {
        out.attribute(IFLA_ADDRESS, i.hardware.data(), i.hardware.size());
        out.attribute(IFLA_BROADCAST, i.hardware_broadcast.data(), i.hardware_broadcast.size());
    }
    // Linux always sends statistics, and node_exporter reads them without a check. The host's traffic is none of the
    // machine's concern, so they are zero.
    const rtnl_link_stats64 wide{};
    const rtnl_link_stats narrow{};
    out.attribute(IFLA_STATS64, &wide, sizeof(wide));
    out.attribute(IFLA_STATS, &narrow, sizeof(narrow));
    out.end();
}

void put_address(Messages& out, const Request& request, const Interface& i, const InterfaceAddress& a) {
    ifaddrmsg info{};
    info.ifa_family = a.family;
    info.ifa_prefixlen = a.prefix;
    info.ifa_flags = IFA_F_PERMANENT;
    info.ifa_scope = a.scope;
    info.ifa_index = i.index;
    out.begin(RTM_NEWADDR, NLM_F_MULTI, request.header.nlmsg_seq, request.port, info);
    out.attribute(IFA_ADDRESS, a.ip.data(), a.bytes());
    if (a.family == AF_INET) {
        out.attribute(IFA_LOCAL, a.ip.data(), a.bytes());
        if (a.has_broadcast)
            out.attribute(IFA_BROADCAST, a.broadcast.data(), a.bytes());
        out.text(IFA_LABEL, i.name);
    }
    out.number(IFA_FLAGS, IFA_F_PERMANENT);
    out.end();
}

template <class T>
T head(std::span<const std::byte> body) {
    T value{};
    std::memcpy(&value, body.data(), std::min(body.size(), sizeof(T)));
    return value;
}

// The interface name in a request for one link.
std::string asked_name(std::span<const std::byte> body) {
    for (std::size_t at = NLMSG_ALIGN(sizeof(ifinfomsg)); at + sizeof(rtattr) <= body.size();) {
        const auto attribute = head<rtattr>(body.subspan(at));
        if (attribute.rta_len < sizeof(rtattr) || attribute.rta_len > body.size() - at)
            break;
        const auto* text = reinterpret_cast<const char*>(body.data() + at + sizeof(rtattr));
        if (attribute.rta_type == IFLA_IFNAME)
            return std::string(text, ::strnlen(text, attribute.rta_len - sizeof(rtattr)));
        at += RTA_ALIGN(attribute.rta_len);
    }
    return {};
}

int one_link(Messages& out, const Request& request, const std::vector<Interface>& interfaces) {
    if (request.body.size() < sizeof(ifinfomsg))
        return EINVAL;
    const int index = head<ifinfomsg>(request.body).ifi_index;
    const std::string name = asked_name(request.body);
    if (index <= 0 && name.empty())
        return EINVAL;
    for (const Interface& i : interfaces)
        if (index > 0 ? static_cast<int>(i.index) == index : i.name == name) {
            put_link(out, request, i, 0);
            return 0;
        }
    return ENODEV;
}

// Answers one request. Returns 0, or the errno for an NLMSG_ERROR message.
int answer(Messages& out, const Request& request, const Policy& policy) {
    const std::uint16_t type = request.header.nlmsg_type;
    if (type < kFirstType || (type <= RTM_MAX && request.body.size() < sizeof(rtgenmsg)))
        return 0;
    if ((type - RTM_BASE) % 4 != 2) // RTM_NEW*, RTM_DEL*, RTM_SET*
        return type > RTM_MAX ? EOPNOTSUPP : EPERM;
    if (type != RTM_GETLINK && type != RTM_GETADDR)
        return EOPNOTSUPP;
    const std::vector<Interface> interfaces = visible_interfaces(policy);
    if (!request.dump())
        return type == RTM_GETLINK ? one_link(out, request, interfaces) : EOPNOTSUPP;
    const int family = head<rtgenmsg>(request.body).rtgen_family;
    for (const Interface& i : interfaces)
        if (type == RTM_GETLINK)
            put_link(out, request, i, NLM_F_MULTI);
    for (const int wanted : {AF_INET, AF_INET6})
        for (const Interface& i : interfaces)
            for (const InterfaceAddress& a : i.addresses)
                if (type == RTM_GETADDR && a.family == wanted && (family == AF_UNSPEC || family == wanted))
                    put_address(out, request, i, a);
    out.begin(NLMSG_DONE, NLM_F_MULTI, request.header.nlmsg_seq, request.port, int{0});
    out.end();
    return 0;
}

void put_error(Messages& out, const Request& request, int error) {
    struct {
        int error;
        nlmsghdr header;
    } body{-error, request.header};
    out.begin(NLMSG_ERROR, 0, request.header.nlmsg_seq, request.port, body);
    if (error != 0)
        out.more(request.body.data(), request.body.size());
    out.end();
}

} // namespace

// Host call kRoute: (request*, bytes, reply*, room, port) -> bytes of all messages in the reply.
std::int64_t call_route(CallContext& call, const CallArgs& args) {
    const std::uint64_t bytes = args.arg[1], room = args.arg[3];
    if (bytes > kMaxRequest || room > kMaxReply)
        return -EMSGSIZE;
    std::vector<std::byte> request(bytes);
    if (!call.memory.read(address_arg(args.arg[0]), request))
        return -EFAULT;
    Messages out;
    for (std::size_t at = 0; at + sizeof(nlmsghdr) <= request.size();) {
        Request one;
        one.header = head<nlmsghdr>(std::span(request).subspan(at));
        const std::size_t length = one.header.nlmsg_len;
        if (length < sizeof(nlmsghdr) || length > request.size() - at)
            break; // as on Linux, a malformed message gets no answer
        one.all = std::span(request).subspan(at, length);
        one.body = one.all.subspan(sizeof(nlmsghdr));
        one.port = static_cast<std::uint32_t>(args.arg[4]);
        const int error = one.header.nlmsg_flags & NLM_F_REQUEST ? answer(out, one, call.policy) : 0;
        const bool dumped =
            error == 0 && one.dump() && one.header.nlmsg_type >= kFirstType && (one.header.nlmsg_flags & NLM_F_REQUEST);
        if (error != 0 || (!dumped && (one.header.nlmsg_flags & NLM_F_ACK)))
            put_error(out, one, error);
        at += NLMSG_ALIGN(length);
    }
    if (out.bytes().size() > room)
        return -ENOBUFS;
    return call.memory.write(address_arg(args.arg[2]), out.bytes()) ? static_cast<std::int64_t>(out.bytes().size())
                                                                    : -EFAULT;
}

} // namespace tinykvm
