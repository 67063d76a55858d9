#!/usr/bin/env python3
"""Many clients at once: functions that are all cold, and connections that say nothing or little.

    bench/crowd.py [--functions 200] [--idle 10000] [--slow 2000] [--rounds 3] [--json FILE]

cold    --functions different functions, half of functions/c-epoll and half of node-http, none of which has a process,
        are asked at once, each over a connection of its own. Printed: when half of them and all of them are answered,
        and how many failed. Before the first round their snapshots have been served once, so that the page cache of
        the store is as it is on a machine that has run for a while; --rounds times.
crowd   p50 and p99 of a warm C function, by wrk with 8 connections, in turns: without others, with --idle connections
        that have sent nothing since one request, and with --slow more that send one byte of a request each second. What
        sending these bytes itself costs a host of two CPUs says a turn in which the slow ones are connected to a socket
        that nobody reads from. Each turn takes 5 s; the turns follow each other --rounds times. Printed: medians, and
        ratios.

Needs build/ (scripts/build.sh, scripts/functions.sh) and, for the connections, a hard limit of open files above
the number of connections.
"""
import argparse
import contextlib
import json
import pathlib
import re
import resource
import select
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import serving


def request(name):
    return f"GET / HTTP/1.1\r\nHost: {name}.localhost\r\n\r\n".encode()


def ask_all(port, names):
    """One request on a new connection to each of them at once: seconds until each reply, or None where there is none."""
    begin = time.monotonic()
    taken = dict.fromkeys(names)
    with selectors.DefaultSelector() as selector:
        for name in names:
            client = socket.create_connection(("127.0.0.1", port))
            client.sendall(request(name))
            selector.register(client, selectors.EVENT_READ, (name, bytearray()))
        while selector.get_map() and time.monotonic() < begin + 120:
            for key, _ in selector.select(1):
                name, reply = key.data
                more = key.fileobj.recv(65536)
                reply += more
                if more and b"\r\n\r\n" not in reply:
                    continue
                if reply.startswith(b"HTTP/1.1 200 "):
                    taken[name] = time.monotonic() - begin
                else:
                    print(f"{name}: {bytes(reply[:300])}", file=sys.stderr)
                selector.unregister(key.fileobj)
                key.fileobj.close()
    return taken


def cold(options, folder):
    """Seconds until half of them and until all are answered, and the failures, of each round."""
    platform = serving.Platform(folder)
    snaps = {"c": serving.snapshot(folder, "c", serving.c_program(folder, "Hello")), "n": serving.snapshot(folder, "n", serving.node(folder, "node"))}
    names = [f"{'cn'[number % 2]}{number}" for number in range(options.functions)]
    for name in names:
        platform.deploy(snaps[name[0]], name)
    rounds = []
    try:
        platform.serve("--idle", "3")
        ask_all(platform.port, ["c0", "n1"])
        time.sleep(10)  # the snapshots are compressed behind their deploy
        for _ in range(options.rounds):
            while serving.functions(platform.daemon.pid):
                time.sleep(0.2)
            taken = ask_all(platform.port, names)
            answered = sorted(seconds for seconds in taken.values() if seconds is not None)
            rounds.append({"half_s": answered[len(answered) // 2], "all_s": answered[-1], "failed": len(names) - len(answered)})
            print(f"cold: {len(names)} functions at once: half in {rounds[-1]['half_s']:.2f} s, all in {rounds[-1]['all_s']:.2f} s, {rounds[-1]['failed']} failed", flush=True)
    finally:
        platform.stop()
    return rounds


def latencies(port, seconds=5):
    """p50 and p99 in us of wrk with eight connections."""
    words = ["wrk", "-t1", "-c8", f"-d{seconds}", "--latency", "-H", "Host: warm.localhost", f"http://127.0.0.1:{port}/"]
    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in text or "Socket errors" in text:
        print(text, file=sys.stderr)
    units = {"us": 1, "ms": 1000, "s": 1000000}
    found = dict(re.findall(r"^ +(50|99)% +([0-9.]+(?:us|ms|s))$", text, re.M))
    return tuple(float(re.match("[0-9.]+", found[part])[0]) * units[found[part].lstrip("0123456789.")] for part in ("50", "99"))


class Crowd:
    """Connections from several addresses of this machine: each has few ports."""

    def __init__(self, port, idle, slow, unread):
        self.sockets = []
        self.unread = []
        sink = socket.create_server(("127.0.0.1", 0)) if unread else None
        if sink:
            port = sink.getsockname()[1]
        self.slow = []
        self.ended = threading.Event()
        for number in range(idle + slow):
            client = socket.socket()
            client.bind((f"127.0.0.{2 + number % 100}", 0))
            client.connect(("127.0.0.1", port))
            if number < idle:
                client.sendall(request("warm"))
                client.recv(65536)
                self.sockets.append(client)
            else:
                self.slow.append(client)
                if sink:
                    self.unread.append(sink.accept()[0])
        self.thread = threading.Thread(target=self.drip)
        self.thread.start()

    def drip(self):
        text = b"GET / HTTP/1.1\r\nHost: warm.localhost\r\nX-Long: " + b"a" * 1000
        for byte in text:
            for number in range(100):  # not all of them at once: that would take a CPU for some milliseconds
                for client in self.slow[number::100]:
                    with contextlib.suppress(OSError):  # its time for the header is over
                        client.send(bytes([byte]))
                if self.ended.wait(0.01):
                    return

    def open(self):
        """How many are still connected."""
        ended = select.poll()
        for client in self.sockets + self.slow:
            ended.register(client, select.POLLIN)
        return len(self.sockets + self.slow) - len(ended.poll(0))

    def close(self):
        self.ended.set()
        self.thread.join()
        for client in self.sockets + self.slow + self.unread:
            client.close()


def crowd(options, folder):
    platform = serving.Platform(folder)
    platform.deploy(serving.snapshot(folder, "w", serving.c_program(folder, "Hello")), "warm")
    turns = {"alone": [], "unread": [], "idle": [], "slow": []}
    try:
        platform.serve("--idle", "3600", "--max-connections", "16000", "--access-log", "/dev/null")
        latencies(platform.port)
        for _ in range(options.rounds):
            for name in turns:
                idle, slow = options.idle if name in ("idle", "slow") else 0, options.slow if name in ("slow", "unread") else 0
                others = Crowd(platform.port, idle, slow, name == "unread")
                turns[name].append(latencies(platform.port))
                still = others.open()
                others.close()
                time.sleep(1)  # closing thousands is work of its own
                print(f"crowd: {name}: p50 {turns[name][-1][0]:.0f} us, p99 {turns[name][-1][1]:.0f} us; {still} of {idle + slow} others still connected", flush=True)
    finally:
        platform.stop()
    medians = {name: [statistics.median(each[i] for each in times) for i in range(2)] for name, times in turns.items()}
    for name, other in [("idle", "alone"), ("slow", "alone"), ("slow", "unread")]:
        p50, p99 = (medians[name][i] / medians[other][i] for i in range(2))
        print(f"crowd: {name} to {other}: p50 {p50:.2f}, p99 {p99:.2f} times")
    return medians


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--functions", type=int, default=200)
    parser.add_argument("--idle", type=int, default=10000)
    parser.add_argument("--slow", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["cold", "crowd"])
    parser.add_argument("--json")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    result = {}
    for name, measure in [("cold", cold), ("crowd", crowd)]:
        if options.only in (None, name):
            with tempfile.TemporaryDirectory() as folder:
                result[name] = measure(options, pathlib.Path(folder))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
