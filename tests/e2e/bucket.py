"""A real S3 service (versitygw over a folder) on this host. Used by test_chunks_in_s3.py."""
import contextlib
import http.client
import os
import pathlib
import signal
import subprocess

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
