"""Caddy with packaging/cluster/Caddyfile, out of build/caddy, where scripts/setup.sh --tests puts it."""
import contextlib
import pathlib
import socket

import harness
import pytest

CONFIG = harness.ROOT / "packaging" / "cluster" / "Caddyfile"


class Caddy(harness.Process):
    """Serves when the constructor returns. `servers`: ports of requests; `health`: that of the API of all.

    Both have TLS with certificates of `authority`.
    """

    def __init__(self, folder: pathlib.Path, servers: list[tuple[str, int]], health: int, authority: pathlib.Path) -> None:
        binary = harness.BUILD / "caddy" / "usr" / "bin" / "caddy"
        if not binary.exists():
            pytest.skip(f"there is no Caddy: scripts/setup.sh --tests unpacks it into {harness.BUILD}")
        self.port = harness.free_port()
        config = CONFIG.read_text()
        for old, new in ((":80 {", f"http://:{self.port} {{\n\tbind 127.0.0.1"), ("localhost:2019", f"localhost:{harness.free_port()}"),
                         ("https://node1:8443 https://node2:8443 https://node3:8443", " ".join(f"https://{host}:{port}" for host, port in servers)),
                         ("health_port 8081", f"health_port {health}"), ("/etc/caddy/authority.pem", str(authority))):  # fmt: skip
            assert config.count(f"{old}\n") + config.count(f"{old} ") == 1, old
            config = config.replace(old, new)
        file = folder / "Caddyfile"
        file.write_text(config)
        super().__init__([str(binary), "run", "--config", str(file), "--adapter", "caddyfile"], env={**harness.BASE_ENVIRONMENT, "HOME": str(folder)})
        harness.wait_until(self.listens, lambda: f"Caddy listens; {self.err[-1000:]}")

    def listens(self) -> bool:
        assert self.running(), self.err[-1000:]
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), harness.PATIENCE):
            return True
        return False
