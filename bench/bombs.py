#!/usr/bin/env python3
"""64 snapshots at once that inflate to a thousand times their size (tests/e2e/bombs.py), uploaded again and again while
others use the API: how much memory the daemon takes, and how long its API takes to answer.

    bench/bombs.py [--bombs 64] [--seconds 20]

Needs build/ (scripts/build.sh, scripts/functions.sh). KVMSERVER_BUILD names another. Exit status 1 when a bomb was
taken for a snapshot or a question of others went unanswered.
"""
import argparse
import http.client
import itertools
import json
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import common

sys.path.insert(0, str(common.ROOT / "tests/e2e"))
import bombs  # noqa: E402


class Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


def ask(connection, method, path, body=None, headers=None):
    connection.request(method, path, body, headers or {})
    reply = connection.getresponse()
    return reply.status, reply.headers, reply.read()


class Daemon:
    def __init__(self, folder):
        self.store, self.port = folder / "store", common.free_port()
        self.log = open(folder / "log", "wb")
        self.popen = subprocess.Popen([common.KVMSERVER, "serve", "--store", self.store, "--listen", "127.0.0.1:0",
                                       "--admin", f"127.0.0.1:{self.port}"], stdout=subprocess.PIPE, stderr=self.log)
        if not self.popen.stdout.readline().startswith(b"Serving"):
            raise common.Failure(f"the daemon does not serve: {common.tail(folder / 'log')}")

    def socket(self):
        return Unix(str(self.store / "admin.sock"))

    def token(self):
        status, _, body = ask(self.socket(), "POST", "/v1/tokens", json.dumps({"name": "b", "scopes": ["deploy"]}))
        assert status == 201, body
        return json.loads(body)["token"]

    def kib(self, name):
        lines = pathlib.Path(f"/proc/{self.popen.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(name)).split()[1])

    def close(self):
        self.popen.send_signal(signal.SIGTERM)
        self.popen.wait()


def upload(daemon, token, data):
    """The statuses of its answers, the last of which is not 503."""
    headers, statuses, where, offset = {"Authorization": f"Bearer {token}"}, [], None, 0
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", daemon.port)
        try:
            if not where:
                body = json.dumps({"size": len(data), "sha256": bombs.digest(data)})
                status, answered, _ = ask(connection, "POST", "/v1/uploads", body, headers)
                where = answered["Location"] if status == 201 else None
            else:
                more = {**headers, "Upload-Offset": str(offset)}
                status, answered, _ = ask(connection, "PATCH", where, data[offset:], more)
                statuses.append(status)
                if status != 503:
                    return statuses
                head, kept, _ = ask(connection, "HEAD", where, None, headers)
                offset = int(kept["Upload-Offset"]) if head == 200 else offset
            if status == 503:
                time.sleep(float(answered["Retry-After"]))
        except (ConnectionError, http.client.HTTPException):  # closed while it was sending: busy
            time.sleep(1)
        finally:
            connection.close()


def percentile(values, part):
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def measure(daemon, sample, count, seconds):
    token, numbers, end = daemon.token(), itertools.count(), time.monotonic() + seconds
    wrong, done, took = [], [], {"GET /v1/info": [], "GET /v1/functions": []}
    before = daemon.kib("VmRSS")

    def bomber():
        while time.monotonic() < end:
            statuses = upload(daemon, token, sample.bomb(next(numbers)))
            done.append(len(statuses))
            if statuses[-1] != 422:
                wrong.append(f"a bomb was answered with {statuses[-1]}")

    threads = [threading.Thread(target=bomber) for _ in range(count)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        for question, times in took.items():
            begin = time.perf_counter()
            status, _, _ = ask(daemon.socket(), *question.split())
            times.append((time.perf_counter() - begin) * 1e3)
            if status != 200:
                wrong.append(f"{question} was answered with {status}")
        time.sleep(0.002)
    print(f"{count} clients, {len(done)} bombs in {seconds} s, {sum(done) - len(done)} times told to try again")
    most = daemon.kib("VmHWM")
    print(f"the daemon: {before} KiB before, {most} KiB at most, grown by {most - before} KiB")
    for question, times in took.items():
        print(f"{question}: {len(times)} times, median {percentile(times, 0.5):.1f} ms, "
              f"p99 {percentile(times, 0.99):.1f} ms, longest {max(times):.1f} ms")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bombs", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kvmserver-bombs-") as name:
        folder = pathlib.Path(name)
        program = common.programs()["c-epoll"]
        argv = common.words(program, common.free_port())
        subprocess.run([common.KVMSERVER, "snapshot", "--allow-all", "-o", folder / "a.snap", *argv], check=True,
                       stdout=subprocess.DEVNULL)
        daemon = Daemon(folder)
        try:
            sample = bombs.Snapshot((folder / "a.snap").read_bytes())
            wrong = measure(daemon, sample, options.bombs, options.seconds)
        finally:
            daemon.close()
    for line in sorted(set(wrong)):
        print(f"bombs: {line} ({wrong.count(line)} times)", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except common.Failure as failure:
        sys.exit(f"bombs: {failure}")
