"""What the web page tells of a function: its addresses, its failed requests, its program."""
import json
import subprocess

import harness
import pytest
from test_ui_forms import unfold
from ui_site import page, sign_in, site, token  # noqa: F401

DAEMON = {"address": "127.0.0.1:8080", "port": 8080, "tls": False}


def addresses(page) -> list[list[str]]:
    """URL and line of curl of each route."""
    return page.run("[...document.querySelectorAll('#routes li')].map((item) => [...item.querySelector('span').childNodes].map((each) => each.textContent))")


@pytest.mark.nightly
def test_a_copied_line_of_curl_reaches_the_function(page, site, token, program) -> None:
    site.store.deploy_probe(program("node-http"), "routed", "it is me", 'routes = ["shop.example.com/name/*", "/name/*", "*.example.org"]\n')
    try:
        page.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"], origin=site.origin)
        sign_in(page, site, token, "#routed")
        page.wait_for("document.querySelectorAll('#routes li').length === 3", "its three routes")
        there = f"127.0.0.1:{site.daemon.port}"
        shown = {url: line for url, line in addresses(page)}
        assert set(shown) == {f"http://shop.example.com:{site.daemon.port}/name/", f"http://{there}/name/", f"http://any.example.org:{site.daemon.port}/"}
        for number in range(1, 4):
            page.click(f"#routes li:nth-child({number}) button")
            page.wait_for_text("#routes-said", "Copied: curl")
            line = page.run("navigator.clipboard.readText()")
            assert line in shown.values() and page.text("#routes-said") == f"Copied: {line}"
            done = subprocess.run(["sh", "-c", f"{line.replace('curl', 'curl -sS', 1)}"], capture_output=True, text=True, timeout=harness.PATIENCE)
            assert done.stdout == ("not found\n" if "org" in line else "it is me"), (line, done)
        links = page.run("[...document.querySelectorAll('#routes a')].map((each) => [each.href, each.rel])")
        assert links == [[url, "noopener noreferrer"] for url, _ in addresses(page)]
    finally:
        site.store.ok("delete", "routed", "-y")


@pytest.mark.nightly
@pytest.mark.parametrize("daemon, route, url, line", [
    ({}, "hello.localhost", "http://hello.localhost:8080/", "curl --connect-to '::127.0.0.1:8080' 'http://hello.localhost:8080/'"),
    ({"address": ":80", "port": 80}, "a.b", "http://a.b/", "curl --connect-to '::127.0.0.1:80' 'http://a.b/'"),
    ({"address": "[2001:db8::1]:443", "port": 443, "tls": True}, "a.b/x", "https://a.b/x", "curl --connect-to '::[2001:db8::1]:443' 'https://a.b/x'"),
    ({"address": "/run/k'.sock", "port": 0}, "a.b", "http://a.b/", "curl --unix-socket '/run/k'\\''.sock' 'http://a.b/'"),
], ids=["name", "all-addresses", "tls", "unix"])
def test_addresses_by_the_kind_of_listener(page, site, token, daemon, route, url, line) -> None:
    sign_in(page, site, token, "#hello")
    page.wait_for_text("#routes", "curl")
    page.run(f"""Promise.all([import('/ui/api.js'), import('/ui/addresses.js')]).then(([{{ state }}, {{ showAddresses }}]) => {{
        clearTimeout(state.timer); state.daemon = {json.dumps({**DAEMON, **daemon})};
        showAddresses({{ name: 'hello', routes: [{json.dumps(route)}] }}); }})""")
    assert addresses(page) == [[url, line]]
    assert page.run("document.querySelectorAll('#routes a').length") == (1 if {**DAEMON, **daemon}["port"] else 0)


def failures(page) -> list[str]:
    return page.run("[...document.querySelectorAll('#failures li')].map((each) => each.innerText)")


@pytest.mark.nightly
def test_failed_requests_alike_are_shown_together(page, site, token, program) -> None:
    site.store.deploy_probe(program("node-http"), "broken", "broken")
    try:
        sign_in(page, site, token, "#broken")
        page.wait_for_text("#versions", "v1")
        site.daemon.text("broken", "/name")
        site.daemon.ask("broken", "/nowhere")  # 404 is the program's answer
        assert page.text("#failures-part") == ""
        assert site.daemon.ask("broken", "/need/NOTHING").status == 503
        page.wait_for_text("#failures", "v1 GET /need/NOTHING 503")
        for _ in range(2):
            last = site.daemon.ask("broken", "/die")
            assert last.status == 502
        page.wait_for_text("#failures", "2 times, last")
        first, second = failures(page)
        assert first.startswith("v1 GET /die 502 program") and last.problem["request_id"] in first
        assert second.startswith("v1 GET /need/NOTHING 503") and "times" not in second
        assert "nowhere" not in page.text("#failures") and "/name" not in page.text("#failures")
        for number in range(5):
            site.daemon.ask("broken", f"/need/N{number}")
        page.wait_for_text("#failures-note", "the last 5 of 7 kinds")
        assert [each.split()[2] for each in failures(page)] == [f"/need/N{number}" for number in (4, 3, 2, 1, 0)]
        page.run("location.hash = '#other'")  # nothing of it is left on the page of another
        page.wait_for_text("#name", "other")
        page.wait_for("document.querySelector('#failures-part').hidden", "no failures of another")
    finally:
        site.store.ok("delete", "broken", "-y")


def test_what_the_program_said_is_with_its_failure(page, site, token, program) -> None:
    site.store.deploy_probe(program("node-http"), "broken", "broken")
    try:
        sign_in(page, site, token, "#broken")
        page.wait_for_text("#versions", "v1")
        reply = site.daemon.ask("broken", "/throw/%3Cb%3E")
        assert reply.status >= 500, reply
        page.wait_for_text("#failures", "v1 GET /throw")
        page.wait_for_text("#failures code", "Error: <b>")
    finally:
        site.store.ok("delete", "broken", "-y")


@pytest.mark.nightly
def test_the_program_of_the_live_version(page, site, token) -> None:
    sign_in(page, site, token, "#hello")
    page.wait_for_text("#versions", "v1")
    unfold(page, "settings-part")
    facts = page.run("Object.fromEntries([...document.querySelectorAll('#settings > div')].map((box) => [...box.children].map((each) => each.innerText)))")
    version = next(each for each in site.store.json("versions", "hello")["versions"] if each["version"] == 2)
    assert "probe.js" in facts["program"] and facts["program"].endswith(" new") and facts["allow-all"] == "true"
    assert facts["deployed by"] == site.user and version["snapshot"].startswith(facts["snapshot"].split(", ")[1].rstrip("…"))
