"""Daemons of a cluster behind Caddy with packaging/cluster/Caddyfile."""
import contextlib
import json

import admin
import harness
import serving
from caddy import Caddy
from clusters import Load, Node, cluster, etcd, s3, snapshot  # noqa: F401  fixtures

ROUNDS = 4


def who_answers(balancer: Caddy, nodes: list[Node], names: list[str]) -> dict[str, set[str]]:
    """The hosts of the daemons that got the requests of each function, by their access logs."""
    logs = {node.host: node.daemon.access_file for node in nodes}
    before = {host: log.stat().st_size for host, log in logs.items()}
    for name in names:
        for _ in range(ROUNDS):
            reply = serving.ask(balancer.port, name)
            assert reply.status == 200, (reply, balancer.err[-2000:])
    found: list[tuple[str, str]] = []

    def all_logged() -> bool:
        found[:] = [(json.loads(line)["function"], host) for host, log in logs.items()
                    for line in log.read_bytes()[before[host]:].splitlines(keepends=True) if line.endswith(b"\n")]  # fmt: skip
        return len(found) == ROUNDS * len(names)

    harness.wait_until(all_logged, lambda: f"{ROUNDS * len(names)} requests are logged; there are {len(found)}")
    return {name: {host for function, host in found if function == name} for name in names}


def test_behind_caddy(cluster, folder, snapshot) -> None:
    """A function is on one daemon. One that is killed, and one that is stopped, are left out, and no later GET fails."""
    certificates = admin.Certificates(folder / "tls")
    words = [word for kind in ("tls", "admin") for word in (f"--{kind}-certificate", str(certificates.certificate), f"--{kind}-key", str(certificates.key))]
    # Caddy knows one port of health for all: so they have addresses of their own.
    nodes = [cluster.node("127.0.0.1"), cluster.node("127.0.0.2")]
    nodes[1].api = nodes[0].api
    for node in nodes:
        node.start(*words)
    names = [f"f{i}" for i in range(8)]
    for name in names:
        nodes[0].store.deploy(snapshot, name)
    nodes[1].becomes(lambda: len(nodes[1].store.json("list")["functions"]) == len(names), "it has all functions")
    balancer = Caddy(folder, [(node.host, node.port) for node in nodes], nodes[0].api, certificates.authority)
    with contextlib.closing(balancer):
        at_first = who_answers(balancer, nodes, names)
        assert all(len(hosts) == 1 for hosts in at_first.values()), at_first
        away = next(node for node in nodes if node.host in at_first[names[0]])
        stays = next(node for node in nodes if node is not away)
        load = Load(balancer.port, names)
        with contextlib.closing(load):
            load.more(1)
            away.daemon.popen.kill()
            away.daemon.popen.wait()
            load.more(2)
            assert serving.ask(balancer.port, names[0]).status == 200
            away.daemon.close()
            away.start(*words)
            load.more(2)  # Caddy asks /readyz once a second
            killed = list(load.bad)
            stays.stop()
            load.more(1)
            stays.start(*words)
            load.more(2)
        # Those in flight on the killed daemon; it may have begun their replies.
        assert load.bad == killed and len(killed) <= len(load.threads), (load.bad[:10], balancer.err[-2000:])
        harness.wait_until(lambda: who_answers(balancer, nodes, names) == at_first, "each function is where it was")
    print(f"{load.good} requests, {len(load.bad)} in flight on the killed daemon failed")
