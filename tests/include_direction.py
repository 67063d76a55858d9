#!/usr/bin/env python3
"""Rejects an #include that goes against the arrows of the design (docs/ARCHITECTURE.md, "Folders and who may include whom").

    tests/include_direction.py              checks tinykvm/ and src/
    tests/include_direction.py --self-test  checks this script
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
SUFFIXES = {".hpp", ".cpp", ".h", ".c", ".S", ".inc"}

# A folder may include itself and these.
MAY_INCLUDE = {
    "tinykvm/abi": [],  # what host and guest kernel agree on; anyone may read it
    "tinykvm/base": [],
    "tinykvm/kvm": ["tinykvm/base"],
    "tinykvm/memory": ["tinykvm/base", "tinykvm/kvm"],
    "tinykvm/elf": ["tinykvm/base", "tinykvm/kvm", "tinykvm/memory"],
    "tinykvm/guest": [],
    "tinykvm/linux": ["tinykvm/base", "tinykvm/kvm", "tinykvm/memory"],
    "tinykvm/debug": ["tinykvm/base"],  # gdb's protocol and core files, without machines
    "tinykvm/machine": ["tinykvm/base", "tinykvm/kvm", "tinykvm/memory", "tinykvm/elf", "tinykvm/linux", "tinykvm/debug"],
    "src/common": ["tinykvm/base"],  # digests, clocks, times as text, the environment
    "src/snapshot": ["tinykvm", "src/common"],
    "src/store": ["tinykvm/base", "src/common"],  # it knows blobs, not machines
    "src/request": ["tinykvm/base"],  # how a request ended, in every mode
    "src/http": ["tinykvm/base", "src/request"],  # it knows sockets, not machines
    "src/protocol": ["src/common", "src/request", "tinykvm/base"],  # between the daemon and the processes of functions
    "src/jail": ["tinykvm/base"],  # the walls around a process
    "src/unique": ["tinykvm"],  # finds generators in a machine's memory
    "src/ceilings": ["src/common", "tinykvm", "src/snapshot"],  # what an operator grants at most
    "src/event_loop": ["tinykvm", "src/request"],  # what a machine waits for
    "src/embed": ["src/common", "tinykvm", "src/snapshot", "src/unique", "src/event_loop"],  # tinykvm as a library
    "src/setup": ["tinykvm", "src/ceilings", "src/jail", "src/event_loop"],  # from options to a booted program
    "src/capture": ["src/common", "tinykvm", "src/snapshot", "src/unique", "src/request", "src/event_loop", "src/setup"],  # making images
    "src/runner": ["src/common", "tinykvm", "src/ceilings", "src/snapshot", "src/request", "src/http", "src/protocol", "src/jail", "src/unique",
                   "src/event_loop", "src/setup", "src/capture"],  # serving from machines
    "src/tracing": ["src/common", "tinykvm/base", "src/http"],  # requests as spans, for a collector
    "src/objects": ["src/common", "tinykvm/base"],  # a client of S3: it knows objects, not snapshots
    "src/etcd": ["src/common", "tinykvm/base"],  # a client of etcd: it knows keys and values
    "src/cluster": ["src/common", "tinykvm/base", "src/store", "src/etcd"],  # a store's part in a cluster
    "src/ops": ["src/common", "tinykvm/base", "src/snapshot", "src/store"],  # what commands and API do alike
    "src/daemon": ["src/common", "tinykvm/base", "src/ceilings", "src/store", "src/request", "src/http", "src/protocol", "src/jail", "src/tracing", "src/objects", "src/cluster"],
    "src/admin": ["src/common", "tinykvm/base", "src/ceilings", "src/store", "src/request", "src/http", "src/ops", "src/daemon", "src/cluster", "src/remote"],
    "src/remote": ["src/common", "tinykvm/base", "src/store", "src/http", "src/ops"],
    "src/cli": ["src/common", "tinykvm", "src/ceilings", "src/snapshot", "src/store", "src/event_loop", "src/setup", "src/capture", "src/runner", "src/http", "src/jail", "src/ops", "src/daemon", "src/admin", "src/remote", "src/tracing", "src/objects", "src/cluster", "src/etcd"],
}
# Single files beyond that. The guest kernel is a world of its own: others know its contract only (tinykvm/abi), and the
# machine also the bytes to load.
ALSO = {
    "src/snapshot/folder_cache.hpp": ["src/daemon", "src/protocol"],  # where copies of pages are; it knows nothing else of snapshots
    "src/snapshot/byte_source.hpp": ["src/daemon"],  # the format of a list of pieces
    "src/snapshot/facts.hpp": ["src/daemon", "src/admin"],  # plain values that are known of a snapshot
    "src/snapshot/pressed.hpp": ["src/daemon"],  # the same of one that was compressed anew
    "src/snapshot/compressed_chunk_cache.hpp": ["src/daemon"],  # where compressed chunks are kept for the next deploy
    "src/snapshot/json_text.hpp": ["src/admin"],  # JSON in bounded memory
    "tinykvm/linux/permissions.hpp": ["src/daemon", "src/jail"],  # of these
    "src/store/functions/tenant.hpp": ["src/ceilings"],  # whose a function is, by its name
    "src/remote/curl.hpp": ["src/tracing", "src/objects", "src/etcd"],  # libcurl, loaded at run time
    "tinykvm/guest/embed.hpp": ["tinykvm/machine"],
    "tinykvm/base/chacha20.hpp": ["tinykvm/guest"],
    "include/kvmserver/entropy.h": ["src/unique"],  # for programs
    "include/tinykvm/tinykvm.h": ["src/embed"],  # the library's interface
}
ONLY_IN = {"linux/kvm.h": "tinykvm/kvm/abi.hpp"}  # a system header for one file alone

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def folder_of(path: str) -> str | None:
    return next((folder for folder in MAY_INCLUDE if within(path, folder)), None)


def problem(path: str, bracket: str, target: str, exists_beside: bool = False) -> str | None:
    """Why `path` must not include `target`; None when it may."""
    if target in ONLY_IN:
        return None if path == ONLY_IN[target] else f"only {ONLY_IN[target]} may include <{target}>"
    if bracket == "<":
        return None
    if exists_beside and "/" not in target:
        return None  # a file of the same folder
    mine, other = folder_of(path), folder_of(target)
    if mine is None:
        return f"{path} is in no folder of the design"
    if any(within(path, folder) for folder in ALSO.get(target, [])):
        return None
    if other is None:
        return f"\"{target}\" is in no folder that {mine} may include"
    if other in (mine, "tinykvm/abi") or any(within(other, folder) for folder in MAY_INCLUDE[mine]) and other != "tinykvm/guest":
        return None
    return f"{mine} must not know {other}"


def check_tree() -> list[str]:
    wrong = []
    files = [p for top in ("tinykvm", "src") for p in sorted((ROOT / top).rglob("*")) if p.suffix in SUFFIXES]
    for file in files:
        path = str(file.relative_to(ROOT))
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
            if found := INCLUDE.match(line):
                bracket, target = found.groups()
                why = problem(path, bracket, target, (file.parent / target).exists())
                if why:
                    wrong.append(f"{path}:{number}: {why}")
    if not files:
        wrong.append("there is nothing to check")
    return wrong


def self_test() -> list[str]:
    allowed = [
        ("tinykvm/kvm/vm.cpp", '"', "tinykvm/base/error.hpp"), ("tinykvm/machine/run.cpp", '"', "tinykvm/linux/policy.hpp"),
        ("tinykvm/elf/vdso/guest.cpp", '"', "tinykvm/abi/guest_kernel.hpp"), ("tinykvm/guest/time.cpp", '"', "tinykvm/abi/layout.hpp"),
        ("tinykvm/machine/machine.cpp", '"', "tinykvm/guest/embed.hpp"), ("src/runner/run.cpp", '"', "tinykvm/machine/machine.hpp"),
        ("src/cli/machine/run.cpp", '"', "src/setup/options.hpp"), ("tinykvm/kvm/abi.hpp", "<", "linux/kvm.h"), ("src/cli/a.cpp", "<", "vector"),
    ]  # fmt: skip
    refused = [
        ("tinykvm/base/error.cpp", '"', "tinykvm/kvm/kvm.hpp"), ("tinykvm/linux/files.cpp", '"', "tinykvm/machine/machine.hpp"),
        ("tinykvm/linux/files.cpp", '"', "tinykvm/elf/elf_file.hpp"), ("tinykvm/machine/run.cpp", '"', "src/setup/options.hpp"),
        ("tinykvm/guest/time.cpp", '"', "tinykvm/base/error.hpp"), ("tinykvm/machine/run.cpp", '"', "tinykvm/guest/kernel.hpp"),
        ("src/runner/run.cpp", '"', "tinykvm/guest/embed.hpp"), ("src/snapshot/read.cpp", '"', "src/setup/options.hpp"),
        ("src/store/index.cpp", '"', "tinykvm/machine/machine.hpp"), ("src/runner/a.cpp", "<", "linux/kvm.h"),
        ("src/daemon/daemon.cpp", '"', "src/setup/options.hpp"), ("src/protocol/worker_messages.cpp", '"', "src/store/store.hpp"),
        ("src/http/front.cpp", '"', "tinykvm/machine/machine.hpp"), ("src/http/front.cpp", '"', "src/setup/options.hpp"),
        ("src/cli/a.cpp", '"', "tests/catch.hpp"), ("tinykvm/memory/a.cpp", '"', "tinykvm/elf/elf_file.hpp"),
    ]  # fmt: skip
    wrong = [f"{path} may include {target}, but: {why}" for path, b, target in allowed if (why := problem(path, b, target))]
    return wrong + [f"{path} must not include {target}" for path, b, target in refused if not problem(path, b, target)]


def main() -> int:
    wrong = self_test() if sys.argv[1:] == ["--self-test"] else check_tree()
    print("\n".join(wrong) if wrong else "ok")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
