"""HAProxy with packaging/cluster/haproxy.cfg, out of build/haproxy, where scripts/setup.sh --tests puts it."""
import contextlib
import os
import pathlib
import re
import socket

import harness
import pytest

CONFIG = harness.ROOT / "packaging" / "cluster" / "haproxy.cfg"


class HAProxy(harness.Process):
    """Serves when the constructor returns. `servers`: ports of requests and of health."""

    def __init__(self, folder: pathlib.Path, servers: list[tuple[int, int]]) -> None:
        where = harness.BUILD / "haproxy" / "usr"
        binary = where / "sbin" / "haproxy"
        if not binary.exists():
            pytest.skip(f"there is no HAProxy: scripts/setup.sh --tests unpacks it into {harness.BUILD}")
        self.port = harness.free_port()
        config, replaced = re.subn(r"bind :80$", f"bind 127.0.0.1:{self.port}", CONFIG.read_text(), flags=re.MULTILINE)
        assert replaced == 1
        lines = [line for line in config.splitlines() if not line.lstrip().startswith("server ")]
        lines += [f"    server node{i} 127.0.0.1:{port} check port {health}" for i, (port, health) in enumerate(servers)]
        file = folder / "haproxy.cfg"
        file.write_text("\n".join(lines) + "\n")
        libraries = next((where / "lib").glob("*-linux-gnu"))
        super().__init__([str(binary), "-db", "-f", str(file)], env={**os.environ, "LD_LIBRARY_PATH": str(libraries)})
        harness.wait_until(self.listens, lambda: f"HAProxy listens; {self.err[-1000:]}")

    def listens(self) -> bool:
        assert self.running(), self.err[-1000:]
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), harness.PATIENCE):
            return True
        return False
