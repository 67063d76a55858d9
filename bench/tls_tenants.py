#!/usr/bin/env python3
"""Many tenants' TLS terminators on one port: `protocol = "tls-passthrough"`, each function with the key in its machine.

    bench/tls_tenants.py [--tenants 1,10,100,1000] [--seconds 5] [--clients 2] [--json FILE]

The program is `openssl s_server -www` with a P-256 key, which makes a page of each handshake. It runs bare, as one process, and as
1, 10, ... functions of a daemon with `serve --tls`. A client connects to a tenant chosen at random, makes a full handshake (TLS 1.3),
asks for the page and disconnects. So each connection has a clean machine. What is counted: connections per second, clients and servers
on the same CPUs, and the memory of the host per warm function. Needs build/ (scripts/build.sh) and openssl.
"""
import argparse
import json
import multiprocessing
import os
import pathlib
import random
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time

import common

HOSTS = "t{}.example"


def page(port, host):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), 60) as plain, context.wrap_socket(plain, server_hostname=host) as client:
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        reply = b""
        try:
            while part := client.recv(65536):
                reply += part
        except (ssl.SSLEOFError, ConnectionResetError):  # s_server closes without saying so
            pass
    if b"s_server" not in reply:
        raise common.Failure(f"{host} answers {reply[:200]!r}")


def ask_for(seconds, port, tenants, seed, counts):
    chosen, end, count = random.Random(seed), time.monotonic() + seconds, 0
    while time.monotonic() < end:
        page(port, HOSTS.format(chosen.randrange(tenants)))
        count += 1
    counts.put(count)


def per_second(options, port, tenants):
    counts = multiprocessing.Queue()
    clients = [multiprocessing.Process(target=ask_for, args=(options.seconds, port, tenants, seed, counts)) for seed in range(options.clients)]
    for client in clients:
        client.start()
    total = sum(counts.get(timeout=options.seconds + 120) for _ in clients)
    for client in clients:
        client.join()
    return total / options.seconds


def available():
    return next(int(line.split()[1]) for line in pathlib.Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable")) * 1024


def put(store, number, snapshot):
    manifest = {"function": {"protocol": "tls-passthrough", "scale": {"idle": "1h"}}}
    connection = common.Unix(store / "admin.sock")
    connection.request("PUT", f"/v1/functions/t{number}", json.dumps({"snapshot": snapshot, "routes": [HOSTS.format(number)], "manifest": manifest}))
    reply = connection.getresponse()
    if reply.status not in (200, 201):
        raise common.Failure(f"deploy of t{number}: {reply.read().decode()}")


def ours(options, folder, argv, results):
    store, port = folder / "store", common.free_port()
    env = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    subprocess.run([options.binary, "snapshot", "-o", folder / "a.snap", "--allow-all", "-w", "0", "--", *argv], check=True, env=env, cwd=folder,
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with tempfile.TemporaryFile() as said, subprocess.Popen([options.binary, "serve", "--store", store, "--listen", f"127.0.0.1:{port}", "--tls"],
                                                            env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said) as daemon:
        try:
            if not daemon.stdout.readline():
                raise common.Failure(f"serve does not start: {os.pread(said.fileno(), 2000, 0).decode(errors='replace')}")
            pushed = subprocess.run([options.binary, "push", "--json", "--store", store, folder / "a.snap"], check=True, env=env, capture_output=True, text=True)
            snapshot = json.loads(pushed.stdout.splitlines()[-1])["snapshot"]
            there = 0
            for tenants in options.tenants:
                before, began = available(), there
                for number in range(there, tenants):
                    put(store, number, snapshot)
                begin = time.monotonic()
                for number in range(there, tenants):
                    page(port, HOSTS.format(number))
                first = (time.monotonic() - begin) / max(1, tenants - began) * 1000
                there = tenants
                rate = per_second(options, port, tenants)
                memory = (before - available()) / max(1, tenants - began) / 1e6
                results.append({"name": f"{tenants} functions", "per_second": rate, "first_ms": first, "mb_each": memory})
                print(f"{results[-1]['name']:20}{rate:9.0f}{first:12.1f}{memory:12.2f}", flush=True)
        finally:
            daemon.terminate()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tenants", type=lambda text: [int(word) for word in text.split(",")], default=[1, 10, 100, 1000])
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--binary", type=pathlib.Path, default=common.KVMSERVER)
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    options = parser.parse_args()
    options.binary = options.binary.resolve()
    common.need(options.binary, "scripts/build.sh builds it")
    openssl = shutil.which("openssl")
    if not openssl:
        raise common.Failure("there is no openssl: apt-get install openssl")
    results = []
    with tempfile.TemporaryDirectory(prefix="kvmserver-bench-") as name:
        folder = pathlib.Path(name)
        subprocess.run([openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=bench",
                        "-keyout", folder / "key.pem", "-out", folder / "cert.pem"], check=True, capture_output=True)
        argv = [openssl, "s_server", "-accept", "127.0.0.1:{port}", "-cert", str(folder / "cert.pem"), "-key", str(folder / "key.pem"), "-www", "-quiet"]
        print(f"{'':20}{'per s':>9}{'first, ms':>12}{'MB each':>12}", flush=True)
        port = common.free_port()
        words = [word.replace("{port}", str(port)) for word in argv]
        with common.Server("openssl", words, port, dict(os.environ), folder) as bare:
            end = time.monotonic() + 10
            while True:
                try:
                    page(port, "bare.example")
                    break
                except OSError:
                    if time.monotonic() > end:
                        raise common.Failure(f"openssl s_server does not answer: {bare.said()}") from None
                    time.sleep(0.05)
            results.append({"name": "bare, one process", "per_second": per_second(options, port, 1)})
            print(f"{results[-1]['name']:20}{results[-1]['per_second']:9.0f}", flush=True)
        ours(options, folder, words, results)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except common.Failure as failure:
        sys.exit(f"tls_tenants: {failure}")
