// Network interfaces by netlink and by ioctl.
#include "transcript.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

static void by_netlink(void) {
    section("getifaddrs");
    struct ifaddrs *list = NULL;
    CALL(getifaddrs(&list));
    for (struct ifaddrs *i = list; i; i = i->ifa_next) {
        char ip[64] = "";
        int family = i->ifa_addr ? i->ifa_addr->sa_family : -1;
        if (family == AF_INET) inet_ntop(family, &((struct sockaddr_in *)i->ifa_addr)->sin_addr, ip, sizeof ip);
        if (family == AF_INET6) inet_ntop(family, &((struct sockaddr_in6 *)i->ifa_addr)->sin6_addr, ip, sizeof ip);
        SAY("%s family %d flags %x %s", i->ifa_name, family, i->ifa_flags & ~0x10000u, ip);
    }
    freeifaddrs(list);
    struct if_nameindex *names = if_nameindex();
    CHECK(names != NULL);
    for (struct if_nameindex *n = names; n && n->if_index; n++) SAY("%u %s", n->if_index, n->if_name);
    if_freenameindex(names);
    char name[IF_NAMESIZE] = "";
    CALL(if_nametoindex("lo"));
    CHECK(if_indextoname(1, name) && !strcmp(name, "lo"));
    CALL(if_nametoindex("nonesuch"));
    CHECK(!if_indextoname(9999, name) && errno == ENXIO);
}

static void ask(int s, int type, int flags, size_t body, const char *what) {
    static struct {
        struct nlmsghdr h;
        char body[64];
    } request;
    static char reply[16384];
    memset(&request, 0, sizeof request);
    request.h.nlmsg_len = (unsigned)(NLMSG_HDRLEN + body), request.h.nlmsg_type = (unsigned short)type;
    request.h.nlmsg_flags = (unsigned short)flags, request.h.nlmsg_seq = 77;
    long sent = send(s, &request, request.h.nlmsg_len, 0);
    CHECK(sent == (long)request.h.nlmsg_len);
    struct sockaddr_nl from;
    socklen_t n = sizeof from;
    long got = recvfrom(s, reply, sizeof reply, MSG_DONTWAIT, (void *)&from, &n);
    if (got < 0) {
        SAY("%s: nothing (%s)", what, strerrorname_np(errno));
        return;
    }
    struct nlmsghdr *h = (void *)reply;
    int error = h->nlmsg_type == NLMSG_ERROR ? ((struct nlmsgerr *)NLMSG_DATA(h))->error : 0;
    SAY("%s: type %d, sequence %u, error %d, from %d, family %d, %d bytes", what, h->nlmsg_type, h->nlmsg_seq, error, from.nl_pid, from.nl_family, n);
}

// The lengths of lo's attributes that programs read without looking whether they are there.
static void attributes_of_lo(void) {
    section("attributes of lo");
    struct {
        struct nlmsghdr h;
        struct ifinfomsg i;
    } request = {{sizeof request, RTM_GETLINK, NLM_F_REQUEST, 1, 0}, {.ifi_index = 1}};
    static char reply[16384];
    int s = (int)CALL(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    CHECK(send(s, &request, sizeof request, 0) == (long)sizeof request);
    long got = recv(s, reply, sizeof reply, 0);
    struct nlmsghdr *h = (void *)reply;
    CHECK(got > 0 && h->nlmsg_type == RTM_NEWLINK);
    struct ifinfomsg *info = NLMSG_DATA(h);
    int length = (int)IFLA_PAYLOAD(h), name = 0, mtu = 0, address = 0, narrow = 0, wide = 0;
    for (struct rtattr *a = IFLA_RTA(info); RTA_OK(a, length); a = RTA_NEXT(a, length)) {
        int bytes = (int)RTA_PAYLOAD(a);
        if (a->rta_type == IFLA_IFNAME) name = bytes;
        if (a->rta_type == IFLA_MTU) mtu = bytes;
        if (a->rta_type == IFLA_ADDRESS) address = bytes;
        if (a->rta_type == IFLA_STATS) narrow = bytes;
        if (a->rta_type == IFLA_STATS64) wide = bytes;
    }
    // Newer kernels have more counters than a program that is older asks for.
    SAY("name %d, mtu %d, address %d, counters %d %d", name, mtu, address, narrow >= 23 * 4, wide >= 23 * 8);
    close(s);
}

static void requests(void) {
    section("requests");
    int s = (int)CALL(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    struct sockaddr_nl a = {.nl_family = AF_NETLINK}, own;
    socklen_t n = sizeof own;
    say_ready("a fresh one", s);
    CALL(bind(s, (void *)&a, 4));
    CALL(bind(s, (void *)&a, sizeof a));
    CALL(getsockname(s, (void *)&own, &n));
    CHECK(n == sizeof own && own.nl_family == AF_NETLINK && own.nl_pid != 0);
    char small[8];
    CALL(recv(s, small, sizeof small, MSG_DONTWAIT));
    ask(s, RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, sizeof(struct ifinfomsg), "links");
    char rest[65536];
    while (recv(s, rest, sizeof rest, MSG_DONTWAIT) > 0) {
    }
    ask(s, RTM_GETADDR, NLM_F_REQUEST | NLM_F_DUMP, sizeof(struct ifaddrmsg), "addresses");
    while (recv(s, rest, sizeof rest, MSG_DONTWAIT) > 0) {
    }
    ask(s, 3, NLM_F_REQUEST | NLM_F_ACK, 8, "a control message");
    ask(s, 300, NLM_F_REQUEST, 8, "no such type");
    ask(s, RTM_GETLINK, 0, sizeof(struct ifinfomsg), "no request");
    ask(s, RTM_GETLINK, NLM_F_REQUEST, sizeof(struct ifinfomsg), "no link in particular");
    CALL(listen(s, 1));
    CALL(accept(s, NULL, NULL));
    CALL(shutdown(s, SHUT_WR));
    int on = 1;
    CALL(setsockopt(s, 270, 11, &on, sizeof on));
    CALL(setsockopt(s, 270, 99, &on, sizeof on));
    close(s);
    CALL(socket(AF_NETLINK, SOCK_STREAM, NETLINK_ROUTE));
    CALL(socket(AF_NETLINK, SOCK_RAW, 31));
}

static void by_ioctl(void) {
    section("ioctl");
    struct ifreq r, list[16];
    struct ifconf all = {.ifc_len = sizeof list, .ifc_req = list};
    int s = (int)MUST(socket(AF_INET, SOCK_DGRAM, 0));
    CALL(ioctl(s, SIOCGIFCONF, &all));
    for (int i = 0; i < all.ifc_len / (int)sizeof(struct ifreq); i++)
        SAY("%s %s", list[i].ifr_name, inet_ntoa(((struct sockaddr_in *)&list[i].ifr_addr)->sin_addr));
    all.ifc_req = NULL;
    CALL(ioctl(s, SIOCGIFCONF, &all));
    CHECK(all.ifc_len >= (int)sizeof(struct ifreq));
    strcpy(r.ifr_name, "lo");
    CALL(ioctl(s, SIOCGIFFLAGS, &r));
    SAY("flags %x", r.ifr_flags);
    CALL(ioctl(s, SIOCGIFADDR, &r));
    SAY("%s", inet_ntoa(((struct sockaddr_in *)&r.ifr_addr)->sin_addr));
    CALL(ioctl(s, SIOCGIFNETMASK, &r));
    SAY("%s", inet_ntoa(((struct sockaddr_in *)&r.ifr_addr)->sin_addr));
    CALL(ioctl(s, SIOCGIFMTU, &r));
    SAY("%d", r.ifr_mtu);
    CALL(ioctl(s, SIOCGIFHWADDR, &r));
    SAY("type %d", r.ifr_hwaddr.sa_family);
    CALL(ioctl(s, SIOCGIFINDEX, &r));
    SAY("%d", r.ifr_ifindex);
    CALL(ioctl(s, SIOCGIFNAME, &r));
    SAY("%s", r.ifr_name);
    strcpy(r.ifr_name, "nonesuch");
    CALL(ioctl(s, SIOCGIFFLAGS, &r));
    CALL(ioctl(s, SIOCGIFCONF, (void *)8));
    CALL(ioctl(s, SIOCGIFFLAGS, (void *)8));
    close(s);
}

int main(void) {
    by_netlink();
    attributes_of_lo();
    requests();
    by_ioctl();
    return 0;
}
