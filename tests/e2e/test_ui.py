"""The web page at /ui, in a real browser."""
import json
import urllib.parse

import harness
import pytest
from ui_site import choose, fact, page, row, sign_in, site, token  # noqa: F401

HOSTILE = "<img src=x onerror=window.hurt=1>"
SCRIPTS = sorted(path.name for path in (harness.ROOT / "src/admin/ui").glob("*.js"))
POLICY = ("default-src 'none'", "script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'")


def test_the_files_are_strict_about_themselves(site) -> None:
    import http.client
    for path, kind in (("/ui", "text/html"), ("/ui/style.css", "text/css"), *((f"/ui/{each}", "text/javascript") for each in SCRIPTS)):
        for method in ("GET", "HEAD"):
            client = http.client.HTTPConnection("127.0.0.1", site.port, timeout=harness.PATIENCE)
            client.request(method, path)
            reply = client.getresponse()
            body = reply.read().decode()
            client.close()
            assert reply.status == 200 and reply.headers["Content-Type"].startswith(kind)
            assert all(rule in reply.headers["Content-Security-Policy"] for rule in POLICY)
            assert "unsafe" not in reply.headers["Content-Security-Policy"] and reply.headers["X-Content-Type-Options"] == "nosniff"
            assert (body != "") == (method == "GET")
            assert "innerHTML" not in body and "onclick=" not in body and "://" not in body.replace("http://www.w3.org/2000/svg", "")


def test_it_asks_for_the_token_once(page, site, token) -> None:
    page.go(site.url)
    page.wait_for("!document.querySelector('#login').hidden", "the page asks for a token")
    assert page.text("#board") == ""
    page.type("#token", "kvs_" + "0" * 64)
    page.click("#login-form button")
    page.wait_for_text("#login-trouble", "the token is unknown, revoked or has expired")
    assert page.text("#board") == "" and page.run("sessionStorage.length") == 0
    page.type("#token", token)
    page.click("#login-form button")
    page.wait_for_text("#functions", "other")
    assert "signed in as page" in page.text("#daemon")
    page.go(site.url + "?")  # asked for again: it is not asked twice
    page.wait_for_text("#functions", "hello")
    assert page.run("localStorage.length") == 0 and page.run("document.cookie") == ""
    assert not [url for url in page.requests if token in url]
    page.click("#sign-out")
    page.wait_for("!document.querySelector('#login').hidden", "the page asks for a token")
    assert page.text("#board") == "" and page.run("sessionStorage.length") == 0


def test_a_revoked_token_ends_the_session(page, site) -> None:
    sign_in(page, site, site.token("short", "--scope", "read"))
    site.store.ok("token", "revoke", "short", "-y")
    page.wait_for_text("#login-trouble", "revoked")
    assert page.text("#board") == ""


def test_requests_are_counted_and_logs_arrive(page, site, token) -> None:
    sign_in(page, site, token)
    choose(page, "other")
    page.wait_for_text("#logs-state", "following")
    before = fact(page, "requests")
    for _ in range(5):
        assert site.daemon.text("other", "/name") == "other"
    site.daemon.text("other", "/say/" + urllib.parse.quote(HOSTILE))
    page.wait_for_text("#logs", f"says {HOSTILE}")
    harness.wait_until(lambda: int(fact(page, "requests")) == int(before) + 6, "6 requests more")
    assert page.run("[window.hurt, document.querySelectorAll('main img').length]") == [None, 0]
    assert fact(page, "cold starts") == "1" and fact(page, "memory").endswith("MiB")
    page.wait_for("[...document.querySelectorAll('#latency text')].some((each) => each.textContent.endsWith('ms')) && document.querySelector('#latency rect') !== null", "the histogram")
    page.wait_for("document.querySelector('#rate path.line') !== null", "requests a second")
    assert row(page, "other")[2] == "0%" and "ready" in row(page, "other")[0]
    site.daemon.text("hello", "/say/elsewhere")  # of another function: not among these
    site.daemon.text("other", "/say/afterwards")
    page.wait_for_text("#logs", "says afterwards")
    assert "elsewhere" not in page.text("#logs")


@pytest.mark.nightly
def test_charts_of_an_hour_a_day_and_a_week(page, site, token) -> None:
    """Drawn from the daemon's measurements; told in words and in a table as well; the span is chosen by keyboard."""
    for _ in range(3):
        assert site.daemon.text("other", "/name") == "other"
    slow = site.store("invoke", "other", "--path", "/sleep/9000", "--timeout", "0.3")  # unlike a death it has no effect on later tests
    assert slow.status != 0, slow
    sign_in(page, site, token, "#other")
    note, label = "#chart-requests-note", "document.querySelector('#chart-requests').getAttribute('aria-label')"
    page.wait_for("document.querySelectorAll('#chart-requests rect').length >= 1", "columns of requests")
    page.wait_for("document.querySelectorAll('#chart-errors rect.bad').length >= 1", "columns of errors")
    page.wait_for("document.querySelectorAll('#chart-latencies circle, #chart-latencies path').length >= 3", "median, 95%, 99%")
    page.wait_for("document.querySelectorAll('#chart-cold-starts rect').length >= 1", "columns of cold starts")
    assert "in all; in a minute: most" in page.text(note)
    assert page.run(label) == f"Requests of the last 1 hour. {page.text(note)}"
    assert "median: most ≤ " in page.text("#chart-latencies-note") and "99%: most ≤ " in page.text("#chart-latencies-note")
    before = int(page.text(note).split()[0])
    site.daemon.text("other", "/name")
    page.wait_for(f"Number.parseInt(document.querySelector('{note}').innerText) > {before}", "the chart goes on by itself")

    page.run("document.querySelector('#span-1h').focus()")
    for name, step in (("24 hours", "10 minutes"), ("7 days", "an hour")):
        page.key("ArrowRight", 39)
        page.wait_for(f"{label}.startsWith('Requests of the last {name}.') && document.querySelectorAll('#chart-requests rect').length >= 1", name)
        assert f"in all; in {step}: most" in page.text(note)
    assert page.run("document.activeElement.value") == "7d"
    page.click("#chart-table summary")
    page.wait_for("document.querySelectorAll('#chart-rows tr').length >= 1", "the table")
    cells = page.run("[...document.querySelector('#chart-rows tr').children].map((each) => each.innerText)")
    assert len(cells) == 7 and int(cells[1]) > 4 and int(cells[2]) >= 1 and cells[3].startswith("≤ ")
    choose(page, "hello")  # another function: its own charts, of the span that was chosen
    page.wait_for(f"{label}.startsWith('Requests of the last 7 days.')", "the charts of hello")
    asked = [url for url in page.requests if "/functions/hello/measurements" in url]
    assert asked and all(url.endswith("?span=7d") for url in asked)
    page.click("#sign-out")
    page.wait_for("!document.querySelector('#login').hidden", "the page asks for a token")
    assert page.run("document.querySelectorAll('#charts rect, #chart-rows tr').length") == 0


def test_a_rollback_is_one_click_and_an_answer(page, site, token) -> None:
    site.store.ok("traffic", "hello", "2=100")
    assert site.daemon.text("hello", "/name") == "new"
    sign_in(page, site, token, "#hello")
    page.wait_for_text("#versions", "v1")
    page.click("#roll-back")
    page.wait_for_text("#confirm-text", "Live now: v2. New requests go to v1")
    page.click("#confirm-no")
    page.wait_for("!document.querySelector('#confirm').open", "the question is gone")
    assert site.daemon.text("hello", "/name") == "new"
    page.click("#roll-back")
    page.wait_for_text("#confirm-text", "v1")
    page.click("#confirm-yes")
    page.wait_for_text("#confirm-result", "Done: hello v2 → v1")
    assert site.daemon.text("hello", "/name") == "old"
    page.click("#confirm-no")
    page.wait_for("document.querySelector('#facts dd').innerText === 'v1'", "v1 is shown as live")
    page.click('#versions [data-version="2"]')  # and forward again
    page.wait_for_text("#confirm-text", "New requests go to v2")
    page.click("#confirm-yes")
    page.wait_for_text("#confirm-result", "Done: hello v1 → v2")
    assert site.daemon.text("hello", "/name") == "new"


def test_the_history_tells_who_and_why(page, site, token) -> None:
    """A message is text, whoever wrote it; the reason that is given here is there for all."""
    site.store.ok("traffic", "hello", "2=100", "-m", HOSTILE)
    sign_in(page, site, token, "#hello")
    first = "document.querySelector('#history li').innerText"
    page.wait_for(f"document.querySelector('#history li') && {first}.includes({json.dumps(HOSTILE)})", "the newest change with its message")
    assert page.run(first).startswith("traffic v") and site.user in page.run(first)
    assert page.run("[window.hurt, document.querySelectorAll('main img').length]") == [None, 0]
    assert "first version" in page.run("document.querySelector('#history li:last-child').innerText")
    page.click("#roll-back")
    page.wait_for_text("#confirm-text", "v1")
    page.type("#confirm-message", "checkout fails")
    page.click("#confirm-yes")
    page.wait_for_text("#confirm-result", "Done: hello v2 → v1")
    assert page.text("#confirm-reason") == "", "nothing more to ask"
    page.wait_for(f"{first}.startsWith('rollback v2 -> v1')", "the roll back is in the history")
    assert "token page" in page.run(first) and "checkout fails" in page.run(first)
    event = site.store.json("history", "hello")["events"][0]
    assert event["message"] == "checkout fails" and event["author"] == {"kind": "token", "name": "page"}
    page.click("#confirm-no")
    page.click('#versions [data-version="2"]')
    page.wait_for_text("#confirm-text", "New requests go to v2")
    assert page.run("document.querySelector('#confirm-message').value") == "", "the reason was for the one before"
    page.click("#confirm-no")
    choose(page, "other")
    page.wait_for("document.querySelectorAll('#history li').length === 1", "the history of the other")


def test_a_failing_function_is_first_and_red(page, site, token) -> None:
    sign_in(page, site, token)
    names = "[...document.querySelectorAll('#functions b')].map((each) => each.innerText)"
    red = "[...document.querySelectorAll('#functions .row.bad b')].map((each) => each.innerText)"
    page.wait_for("document.querySelectorAll('#functions .row').length === 2", "both functions")
    assert page.run(names) == ["hello", "other"] and page.run(red) == []
    for _ in range(3):
        assert site.daemon.ask("other", "/die").status == 502
    page.wait_for(f"JSON.stringify({red}) === '[\"other\"]'", "the one that fails is red")
    assert page.run(names) == ["other", "hello"] and row(page, "other")[2] not in ("0%", "–")


@pytest.mark.nightly
def test_the_page_is_at_the_root_as_well(page, site, token) -> None:
    page.go(site.origin + "/#other")
    page.type("#token", token)
    page.key_enter()
    page.wait_for_text("#name", "other")


@pytest.mark.nightly
def test_nothing_older_is_no_roll_back(page, site, token) -> None:
    sign_in(page, site, token, "#other")
    page.wait_for_text("#versions", "v1")
    assert page.text("#roll-back") == ""
    site.store.ok("traffic", "hello", "1=100")  # v2 is newer: not a roll back, but offered in the list
    choose(page, "hello")
    page.wait_for_text("#versions", "v2")
    assert page.text("#roll-back") == "" and page.text('#versions [data-version="2"]') == "Make live"


@pytest.mark.nightly
def test_the_address_names_the_function(page, site, token) -> None:
    sign_in(page, site, token)
    choose(page, "hello")
    choose(page, "other")
    page.run("history.back()")
    page.wait_for_text("#name", "hello")
    page.run("history.back()")
    page.wait_for("document.querySelector('#detail').hidden", "no function is chosen, as at first")
    page.run("location.hash = '#other'")
    page.wait_for_text("#name", "other")
    assert page.run("location.hash") == "#other"


def test_a_change_by_another_is_not_overrun(page, site, token) -> None:
    site.store.ok("traffic", "hello", "2=100")
    sign_in(page, site, token, "#hello")
    page.wait_for_text("#versions", "v1")
    page.click("#roll-back")
    page.wait_for_text("#confirm-text", "v1")
    site.store.ok("env", "set", "hello", "A=1")
    page.click("#confirm-yes")
    page.wait_for_text("#confirm-result", "Hint: read it again")
    assert "Precondition Failed" in page.text("#confirm-result") and site.daemon.text("hello", "/name") == "new"


def test_what_a_token_may_not_is_not_offered(page, site) -> None:
    sign_in(page, site, site.token("reader", "--scope", "read", "--prefix", "hello"))
    assert page.run("document.querySelectorAll('#functions .row').length") == 1
    assert "choose a function" in page.text("#logs-state")
    choose(page, "hello")
    page.wait_for_text("#versions", "v1")
    assert page.text("#roll-back") == "" and page.run("document.querySelectorAll('#versions button').length") == 0
    page.wait_for_text("#logs-state", "following")


@pytest.mark.nightly
@pytest.mark.parametrize("width", [360, 1280])
def test_nothing_scrolls_sideways(page, site, token, width) -> None:
    page.size(width, 740, mobile=width < 500)
    wide = "document.documentElement.scrollWidth > innerWidth || [...document.querySelectorAll('body *')].some((each) => each.getBoundingClientRect().right > innerWidth + 1)"
    page.go(site.url)
    page.wait_for("!document.querySelector('#login').hidden", "the page asks for a token")
    assert not page.run(wide)
    sign_in(page, site, token)
    choose(page, "hello")
    page.wait_for_text("#versions", "v1")
    site.daemon.text("hello", "/say/" + "x" * 300)
    page.wait_for_text("#logs", "x" * 300)
    page.click("#chart-table summary")
    page.wait_for("document.querySelectorAll('#chart-rows tr').length >= 1", "the table")
    wide_but = wide.replace("'body *'", "'body *:not(#chart-table *)'")  # the table scrolls by itself
    assert not page.run(wide_but)
    page.click("#roll-back")
    page.wait_for_text("#confirm-text", "v1")
    assert not page.run(wide_but)


def test_a_hostile_name_is_text(page, site, token) -> None:
    """Names are checked by the store; the page does not rely on that."""
    sign_in(page, site, token)
    one = {"name": HOSTILE, "live": [{"version": 1, "percent": 100}], "versions": 2, "routes": [HOSTILE], "etag": HOSTILE}
    page.run(f"""Promise.all([import('/ui/api.js'), import('/ui/app.js')]).then(([{{ state }}, {{ show }}]) => {{
        clearTimeout(state.timer); window.fetch = () => new Promise(() => {{}}); state.functions.push({json.dumps(one)}); state.chosen = {json.dumps(HOSTILE)}; show(); }})""")
    assert HOSTILE in page.text("#functions") and HOSTILE in page.text("#name") and HOSTILE in page.text("#routes")
    assert page.run("[window.hurt, document.querySelectorAll('main img').length]") == [None, 0]
