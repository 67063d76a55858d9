"""A real S3 service (versitygw over a folder) on this host, and a proxy before it. Used by tests of buckets and clusters."""
import contextlib
import http.client
import http.server
import os
import pathlib
import signal
import subprocess
import threading
import time

import harness
import pytest

KEY, SECRET, NAME = "testkey", "testsecret", "chunks"
ENVIRONMENT = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}


class S3:
    def __init__(self, folder: pathlib.Path) -> None:
        self.binary = harness.BUILD / "versitygw"
        if not self.binary.exists():
            pytest.skip(f"there is no versitygw: scripts/setup.sh --tests builds it into {harness.BUILD}")
        self.folder = folder
        self.bucket = folder / NAME
        self.bucket.mkdir(parents=True)  # a folder is a bucket
        self.port = harness.free_port()
        self.process: subprocess.Popen | None = None
        self.start()

    def start(self) -> None:
        log = (self.folder.parent / "s3.log").open("ab")
        self.process = subprocess.Popen([self.binary, "--port", f"127.0.0.1:{self.port}", "--access", KEY, "--secret", SECRET,
                                         "posix", self.folder], stdout=log, stderr=log, cwd=self.folder.parent)  # fmt: skip
        log.close()
        harness.wait_until(self.answers, "the S3 service answers")

    def answers(self) -> bool:
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=harness.PATIENCE)
        with contextlib.closing(client), contextlib.suppress(OSError):
            client.request("GET", "/")
            return client.getresponse().status in (400, 403)
        return False

    def pause(self) -> None:
        """It still accepts connections, and answers nothing."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)  # its threads run for a while yet

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Also while it is paused."""
        self.process.kill()
        self.process.wait()

    def url(self, prefix: str = "app") -> str:
        return f"s3://{NAME}/{prefix}?endpoint=http://127.0.0.1:{self.port}"

    def objects(self, prefix: str = "app") -> dict[str, pathlib.Path]:
        """The files of chunks, by digest."""
        return {file.name: file for file in (self.bucket / prefix / "chunks").glob("??/*") if file.is_file()}


class Gate:
    """A proxy before the service: objects of chunks pass once they are let through, each other request at once."""

    def __init__(self, s3: S3) -> None:
        self.s3 = s3
        self.changed = threading.Condition()  # guards the following
        self.shut, self.refuses = False, False
        self.refused = 0
        self.bytes_per_s = 0  # of all chunks together; 0: as many as it gets
        self.line = threading.Lock()
        self.through: set[str] = set()  # digests that pass while it is shut
        self.held: list[str] = []  # in order of arrival
        gate = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                digest = self.path.partition("?")[0].rpartition("/")[2]
                if "/chunks/" in self.path and self.command == "GET" and not gate.admit(digest):
                    self.close_connection = True
                    return
                client = http.client.HTTPConnection("127.0.0.1", s3.port, timeout=harness.PATIENCE)
                with contextlib.closing(client):
                    client.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                    for name, value in self.headers.items():  # Host, too: it is signed
                        client.putheader(name, value)
                    client.endheaders(body)
                    reply = client.getresponse()
                    content = reply.read()
                if "/chunks/" in self.path and self.command == "GET" and gate.bytes_per_s:
                    with gate.line:
                        time.sleep(len(content) / gate.bytes_per_s)
                self.send_response_only(reply.status, reply.reason)
                for name, value in reply.getheaders():
                    if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                        self.send_header(name, value)
                length = reply.headers["content-length"] if self.command == "HEAD" else str(len(content))
                self.send_header("Content-Length", length or "0")
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_HEAD = do_PUT = do_DELETE = do_POST = do  # noqa: N815 their names are given

            def log_message(self, *_) -> None:
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_) -> None:  # clients that went while they were held
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def admit(self, digest: str) -> bool:
        """False: it is refused."""
        with self.changed:
            self.held.append(digest)
            self.changed.notify_all()
            self.changed.wait_for(lambda: not self.shut or self.refuses or digest in self.through)
            self.held.remove(digest)
            self.refused += self.refuses
            self.changed.notify_all()
            return not self.refuses

    def set(self, *, shut: bool | None = None, refuses: bool | None = None, through: set[str] | None = None) -> None:
        with self.changed:
            self.shut = self.shut if shut is None else shut
            self.refuses = self.refuses if refuses is None else refuses
            self.through |= through or set()
            self.changed.notify_all()

    def kept(self) -> list[str]:
        """What it holds and does not let through."""
        return [digest for digest in self.held if digest not in self.through]

    def holds(self, count: int) -> list[str]:
        """What it holds, once it is so many."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.kept()) >= count, harness.PATIENCE), self.held
            return self.kept()

    def close(self) -> None:
        self.set(shut=False)
        self.server.shutdown()
        self.server.server_close()

    def url(self, prefix: str = "app") -> str:
        return f"s3://{NAME}/{prefix}?endpoint=http://127.0.0.1:{self.server.server_port}"
