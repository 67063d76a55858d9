"""A daemon whose page is open in a browser. Used by test_ui*.py, which import the fixtures."""
import os
import pathlib
import pwd

import browser
import harness
import pytest
from serving import Daemon, Store


class Site:
    """A daemon with two versions of `hello`, and one of `other`; without `node`, with no function."""

    def __init__(self, folder: pathlib.Path, node: dict | None) -> None:
        self.store = Store(folder)
        if node:
            for text in ("old", "new"):
                self.store.deploy_probe(node, "hello", text)
            self.store.deploy_probe(node, "other", "other")
        self.port = harness.free_port()
        self.origin = f"http://127.0.0.1:{self.port}"
        self.url = f"{self.origin}/ui"
        self.user = pwd.getpwuid(os.geteuid()).pw_name
        self.daemon = Daemon(self.store, "--admin", f"127.0.0.1:{self.port}")

    def token(self, name: str, *options: str) -> str:
        return self.store.json("token", "create", name, *options)["token"]


@pytest.fixture(scope="module")
def site(tmp_path_factory, program):
    site = Site(tmp_path_factory.mktemp("ui").resolve(), program("node-http"))
    yield site
    site.daemon.close()


@pytest.fixture(scope="module")
def token(site) -> str:
    return site.token("page", "--scope", "deploy")


@pytest.fixture
def page(site, tmp_path):
    """A browser with a profile of its own; no page of ours may ask anything of others, or make the browser complain."""
    if browser.PROGRAM is None:
        pytest.skip("there is no chromium: scripts/setup.sh --tests")
    page = browser.Browser(tmp_path)
    try:
        page.origins = [site.origin + "/"]
        page.expected = ["401", "412"]  # of the complaints: the browser reports each reply with such a status
        yield page
        foreign = [url for url in page.requests if not url.startswith((*page.origins, "data:image/svg+xml,"))]
        assert page.requests and not foreign
        complaints = [line for line in page.complaints if not any(each in line for each in page.expected)]
        assert not complaints, complaints
    finally:
        page.close()


def sign_in(page: browser.Browser, site: Site, token: str, where: str = "") -> None:
    page.go(site.url + where)
    page.type("#token", token)
    page.key_enter()
    page.wait_for_text("#functions", "hello")


def row(page: browser.Browser, name: str) -> list[str]:
    """What the list says of a function: name and state, requests a second, errors, memory."""
    rows = page.run("[...document.querySelectorAll('#functions .row')].map((row) => [...row.children].map((each) => each.innerText))")
    return next(each for each in rows if each[0].split("\n")[0] == name)


def fact(page: browser.Browser, name: str) -> str:
    return page.run("Object.fromEntries([...document.querySelectorAll('#facts div')].map((box) => [...box.children].map((each) => each.innerText)))")[name]


def choose(page: browser.Browser, name: str) -> None:
    page.run(f"[...document.querySelectorAll('#functions .row')].forEach((row, i) => row.id = 'row-' + row.querySelector('b').innerText)")
    page.click(f"#row-{name}")
    page.wait_for_text("#name", name)
