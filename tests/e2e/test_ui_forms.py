"""What one can do with a function on the web page: send it a request, split its traffic, set its values, delete it."""
import json

import harness
import pytest
from ui_site import Site, choose, page, sign_in, site, token  # noqa: F401


def unfold(page, *parts: str) -> None:
    for part in parts:
        page.click(f"#{part} > summary")
        page.wait_for(f"document.querySelector('#{part}').open", part)


def facts_of_reply(page) -> dict[str, str]:
    return page.run("Object.fromEntries([...document.querySelectorAll('#invoke-facts > div')].map((box) => [...box.children].map((each) => each.innerText)))")


def invoke(page, path: str, said: str, method: str = "GET") -> None:
    page.choose("#invoke-method", method)
    page.fill("#invoke-path", path)
    page.click("#invoke-send")
    page.wait_for_text("#invoke-said", said)


@pytest.fixture(scope="module")
def invoker(site) -> str:
    return site.token("invoker", "--scope", "read", "--scope", "invoke")


def test_a_request_and_its_reply(page, site, invoker) -> None:
    site.store.ok("traffic", "hello", "2=100")
    sign_in(page, site, invoker, "#hello")
    unfold(page, "invoke-part")
    page.fill("#invoke-headers", "X-One: a, b\n\n  X-Two:two")
    invoke(page, "/headers/?a=1&b=2", "Status 200")
    sent = json.loads(page.text("#invoke-reply-body"))
    assert sent["x-one"] == "a, b" and sent["x-two"] == "two" and "authorization" not in sent
    facts = facts_of_reply(page)
    assert facts["status"].startswith("200") and facts["version"] == "v2" and facts["cold start"] in ("yes", "no")
    assert all(facts[name].endswith("s") for name in ("total", "queue", "restore", "execution"))
    assert "Content-Type: text/plain" in page.text("#invoke-reply-headers")
    lines = site.store.ok("logs", "hello", "--request", facts["request id"])
    assert "GET /headers/ 200" in lines
    page.fill("#invoke-headers", "")
    page.fill("#invoke-body", "h\u00e9llo <b>")
    invoke(page, "/echo", "Status 200, 10 B", "POST")
    assert page.text("#invoke-reply-body") == "h\u00e9llo <b>"
    page.run("document.querySelector('#invoke-body').value = 'a\\0b'")
    invoke(page, "/echo", "Status 200, 3 B", "POST")
    assert page.text("#invoke-reply-body") == "3 bytes of text/plain, not text"
    page.choose("#invoke-version", "1")
    page.fill("#invoke-body", "")
    invoke(page, "/name", "Status 200")
    assert page.text("#invoke-reply-body") == "old" and facts_of_reply(page)["version"] == "v1"
    page.click("#sign-out")
    page.wait_for("!document.querySelector('#login').hidden", "signed out")
    assert page.run("['#invoke-reply-body', '#invoke-facts'].map((each) => document.querySelector(each).textContent).join('')") == "", "nothing is left"
    assert page.run("document.querySelector('#invoke-path').value") == "/"


def test_a_hostile_reply_is_shown_and_does_nothing(page, site, invoker) -> None:
    sign_in(page, site, invoker, "#hello")
    unfold(page, "invoke-part")
    page.run("document.cookie = 'kept=1; path=/'")
    invoke(page, "/hostile", "Status 302")
    headers = page.text("#invoke-reply-headers")
    for line in ("Location: https://elsewhere.example/", 'Clear-Site-Data: "*"', "Set-Cookie: a=1; Path=/", "Set-Cookie: b=2",
                 "Strict-Transport-Security: max-age=1"):
        assert line in headers, headers
    assert facts_of_reply(page)["status"] == "302 Gone Fishing"
    assert page.text("#invoke-reply-body") == '<script>document.title = "taken over"</script>'
    assert page.run("document.cookie") == "kept=1" and page.run("document.title") != "taken over"
    assert page.run("sessionStorage.getItem('kvmserver-token')") == invoker, "nothing of the origin is cleared"
    assert not [url for url in page.requests if "elsewhere" in url.split("?")[0]]
    page.run("document.cookie = 'kept=; path=/; max-age=0'")
    invoke(page, f"/much/{(1 << 20) + 10}", "Status 200")
    assert "cut off here: 1.0 MiB in all" in page.text("#invoke-reply-body")[-60:]


@pytest.mark.nightly
def test_a_reply_that_is_no_success(page, site, invoker) -> None:
    page.expected += ["502"]
    sign_in(page, site, invoker, "#hello")
    unfold(page, "invoke-part")
    invoke(page, "/nowhere", "Status 404")
    assert page.text("#invoke-reply-body") == "not found\n" and page.text("#invoke-trouble") == ""
    page.fill("#invoke-path", "/die")
    page.click("#invoke-send")
    page.wait_for_text("#invoke-trouble", "program")
    assert page.text("#invoke-reply-parts") == "" and facts_of_reply(page)["status"].startswith("502") and facts_of_reply(page)["request id"]
    choose(page, "other")  # nothing of the last function is left
    page.wait_for("document.querySelector('#invoke-path').value === '/'", "an empty form")
    assert page.text("#invoke-trouble") == "" and facts_of_reply(page) == {}


def test_a_wrong_field_says_so_beside_it(page, site, invoker) -> None:
    sign_in(page, site, invoker, "#hello")
    unfold(page, "invoke-part")
    page.fill("#invoke-path", "name")
    page.fill("#invoke-headers", "X-Fine: 1\nno header")
    page.click("#invoke-send")
    page.wait_for_text("#invoke-path-wrong", "A path begins with /.")
    assert "no header" in page.text("#invoke-headers-wrong") and page.focused() == "invoke-path"
    page.fill("#invoke-path", "/a b")
    page.fill("#invoke-headers", "")
    page.key_enter()
    page.click("#invoke-send")
    page.wait_for_text("#invoke-path-wrong", "%20")
    assert page.text("#invoke-headers-wrong") == ""
    assert not [url for url in page.requests if "/invoke?" in url]


def test_without_the_scope_nothing_can_be_sent_or_changed(page, site, token) -> None:
    site.store.ok("env", "set", "hello", "COLOUR=blue")
    sign_in(page, site, token, "#hello")  # deploy is not invoke
    page.wait_for_text("#versions", "v1")
    assert page.text("#invoke-part") == "" and page.text("#traffic-part") != "" and page.text("#delete") == "Delete"
    page.click("#sign-out")
    page.type("#token", site.token("looker", "--scope", "read"))
    page.key_enter()
    page.wait_for_text("#functions", "hello")
    page.wait_for_text("#versions", "v1")
    unfold(page, "env-part", "secret-part")
    page.wait_for_text("#env-list", "blue")
    assert [page.text(each) for each in ("#invoke-part", "#traffic-part", "#env-form", "#secret-form", "#delete", "#env-list button")] == [""] * 6


@pytest.mark.nightly
def test_traffic_is_split_by_the_keyboard(page, site, token) -> None:
    site.store.ok("traffic", "hello", "2=100")
    sign_in(page, site, token, "#hello")
    page.wait_for_text("#versions", "v1")
    unfold(page, "traffic-part")
    assert page.text("#traffic-preview") == "New requests: v1 10% + v2 90%"
    page.run("document.querySelector('#traffic-percent').focus()")
    for _ in range(15):
        page.key("ArrowRight", 39)
    assert page.text("#traffic-output") == "25%" and page.text("#traffic-preview") == "New requests: v1 25% + v2 75%"
    page.click("#traffic-form button")
    page.wait_for_text("#confirm-text", "Live now: v2. New requests go to v1 25% + v2 75%")
    page.type("#confirm-message", "a careful start")
    page.key_enter()
    page.wait_for_text("#confirm-result", "Done: hello v2 → v1 25% + v2 75%")
    assert site.store.json("history", "hello")["events"][0]["message"] == "a careful start"
    page.key("Escape", 27)
    page.wait_for("!document.querySelector('#confirm').open", "the dialog is gone")
    assert page.run("document.activeElement.closest('form')?.id") == "traffic-form", "the focus is back"
    page.wait_for("document.querySelector('#traffic-version option').innerText === 'v1 (25%)'", "the new split")
    assert page.text("#traffic-output") == "25%"
    page.run("document.querySelector('#traffic-percent').focus()")
    page.key("Home", 36)
    page.click("#traffic-form button")
    page.wait_for_text("#confirm-text", "New requests go to v2;")
    page.click("#confirm-yes")
    page.wait_for_text("#confirm-result", "→ v2")


@pytest.mark.nightly
def test_a_split_does_not_overrun_a_change_by_another(page, site, token) -> None:
    site.store.ok("traffic", "hello", "2=100")
    sign_in(page, site, token, "#hello")
    page.wait_for_text("#versions", "v1")
    unfold(page, "traffic-part")
    page.click("#traffic-form button")
    page.wait_for_text("#confirm-text", "v1 10%")
    site.store.ok("env", "set", "hello", "A=1")
    page.click("#confirm-yes")
    page.wait_for_text("#confirm-result", "Precondition Failed")
    assert site.store.json("list")["functions"][0]["live"] == [{"version": 2, "percent": 100}]


@pytest.mark.nightly
def test_a_variable_is_set_changed_and_unset(page, site, token) -> None:
    def stored() -> dict:
        return site.store.json("env", "list", "other")["env"]

    sign_in(page, site, token, "#other")
    page.wait_for_text("#versions", "v1")
    unfold(page, "env-part")
    page.wait_for_text("#env-none", "No variable")
    page.type("#env-name", "1ST")
    page.key_enter()
    page.wait_for_text("#env-name-wrong", "does not begin with a digit")
    assert page.focused() == "env-name" and stored() == {}
    page.fill("#env-name", "GREETING")
    page.type("#env-value", "good <b>day</b>")
    page.click("#env-set")
    page.wait_for_text("#env-said", "GREETING is set")
    page.wait_for_text("#env-list", "good <b>day</b>")
    assert stored() == {"GREETING": "good <b>day</b>"} and page.text("#env-name-wrong") == ""
    page.click("#env-list button[aria-label='Change GREETING']")
    assert page.focused() == "env-value" and page.run("document.querySelector('#env-name').value") == "GREETING"
    page.fill("#env-value", "hi")
    page.click("#env-set")
    page.wait_for("document.querySelector('#env-list small').innerText === 'hi'", "the new value")
    page.click("#env-list button[aria-label='Unset GREETING']")
    page.wait_for_text("#confirm-title", "Unset the variable GREETING?")
    page.click("#confirm-no")
    page.wait_for("document.activeElement.ariaLabel === 'Unset GREETING'", "the focus is back")
    assert stored() == {"GREETING": "hi"}
    page.key_enter()
    page.wait_for_text("#confirm-title", "Unset the variable GREETING?")
    page.click("#confirm-yes")
    page.wait_for_text("#confirm-result", "Done: GREETING is unset")
    page.wait_for("document.querySelector('#env-list').hidden", "it is no longer listed")
    page.click("#confirm-no")
    assert stored() == {}
    page.wait_for("document.activeElement.id === 'name'", "its button is gone: the focus is on the function's name")


def test_a_secret_goes_in_and_never_comes_out(page, site, token) -> None:
    def stored() -> list:
        return [each["name"] for each in site.store.json("secret", "list", "other")["secrets"]]

    sign_in(page, site, token, "#other")
    page.wait_for_text("#versions", "v1")
    unfold(page, "secret-part")
    page.type("#secret-name", "STRIPE_KEY")
    page.click("#secret-set")
    page.wait_for_text("#secret-value-wrong", "A secret needs a value.")
    page.type("#secret-value", "sk_hush")
    assert page.run("document.querySelector('#secret-value').type") == "password"
    page.key_enter()
    page.wait_for_text("#secret-said", "STRIPE_KEY is set")
    page.wait_for_text("#secret-list", "STRIPE_KEY")
    everything = page.run("document.documentElement.outerHTML + [...document.querySelectorAll('input, textarea')].map((each) => each.value)")
    assert "sk_hush" not in everything and stored() == ["STRIPE_KEY"]
    assert not [url for url in page.requests if "sk_hush" in url]
    page.click("#secret-list button[aria-label='Unset STRIPE_KEY']")
    page.wait_for_text("#confirm-text", "its value is kept nowhere")
    page.click("#confirm-yes")
    page.wait_for_text("#confirm-result", "Done: STRIPE_KEY is unset")
    assert stored() == []


@pytest.mark.nightly
def test_a_value_does_not_overrun_a_change_by_another(page, site, token) -> None:
    sign_in(page, site, token, "#other")
    page.wait_for_text("#versions", "v1")
    unfold(page, "env-part")
    page.type("#env-name", "A")
    page.run("import('/ui/api.js').then(({ state }) => { clearTimeout(state.timer); })")  # it does not see the other's change
    site.store.ok("env", "set", "other", "A=theirs")
    page.type("#env-value", "mine")
    page.click("#env-set")
    page.wait_for_text("#env-trouble", "Precondition Failed")
    assert site.store.json("env", "list", "other")["env"]["A"] == "theirs"
    assert page.run("document.querySelector('#env-value').value") == "mine", "what was typed is still there"


def shown(page) -> list[str]:
    return page.run("[...document.querySelectorAll('#logs > div')].map((each) => each.lastChild.textContent)")


@pytest.mark.nightly
def test_logs_are_searched(page, site, token) -> None:
    sign_in(page, site, token, "#other")
    page.wait_for_text("#logs-state", "following")
    for word in ("apple", "pear"):
        site.daemon.text("other", f"/say/{word}")
        page.wait_for_text("#logs", f"mutters {word}")
    page.type("#logs-grep", "pear")
    page.key_enter()
    page.wait_for("document.querySelectorAll('#logs > div').length === 2", "two lines with it")
    assert sorted(shown(page)) == ["mutters pear", "says pear"]
    page.click("#logs-errors")
    page.wait_for("document.querySelectorAll('#logs > div').length === 1", "stderr alone")
    assert shown(page) == ["mutters pear"]
    page.click("#logs-errors")
    page.fill("#logs-grep", "")
    page.key_enter()
    page.click("#logs-requests")
    page.wait_for_text("#logs", "/say/apple")
    page.choose("#logs-since", "10m")
    page.wait_for("performance.getEntriesByType('resource').some((each) => /logs.*since=10m/.test(each.name))"
                  " || document.querySelector('#logs').innerText.includes('pear')", "asked by time")
    page.wait_for_text("#logs", "says pear")
    assert [url for url in page.requests if "since=10m" in url and "requests=1" in url and "tail=1000" in url]


@pytest.mark.nightly
def test_following_stops_and_goes_on(page, site, token) -> None:
    sign_in(page, site, token, "#other")
    page.wait_for_text("#logs-state", "following")
    site.daemon.text("other", "/say/before")
    page.wait_for_text("#logs", "mutters before")
    page.click("#logs-follow")
    page.wait_for_text("#logs-state", "stopped")
    assert page.text("#logs-follow") == "Follow" and "says before" in page.text("#logs")
    site.daemon.text("other", "/say/meanwhile")
    page.type("#logs-grep", "before")  # a search reads once
    page.key_enter()
    page.wait_for_text("#logs-state", "stopped;")
    page.wait_for("document.querySelector('#logs').innerText.includes('mutters before')", "what was searched")
    page.fill("#logs-grep", "")
    page.key_enter()
    page.wait_for_text("#logs", "mutters meanwhile")  # read anew, still without following
    assert page.text("#logs-follow") == "Follow"
    page.click("#logs-follow")
    page.wait_for_text("#logs-state", "following")
    site.daemon.text("other", "/say/after")
    page.wait_for_text("#logs", "mutters after")


@pytest.mark.nightly
def test_deleting_takes_the_name(page, site, token, program) -> None:
    site.store.deploy_probe(program("node-http"), "gone", "gone")
    sign_in(page, site, token, "#gone")
    page.wait_for_text("#versions", "v1")
    page.click("#delete")
    page.wait_for_text("#confirm-title", "Delete gone?")
    assert page.focused() == "confirm-name" and "1 version," in page.text("#confirm-text")
    page.type("#confirm-name", "gon")
    page.key_enter()
    page.wait_for_text("#confirm-name-wrong", "This is not gone.")
    page.fill("#confirm-name", "gone")
    page.key_enter()
    page.wait_for_text("#confirm-result", "Done: gone is deleted")
    page.key("Escape", 27)
    page.wait_for("document.querySelector('#detail').hidden", "nothing is chosen")
    assert "gone" not in [each["name"] for each in site.store.json("list")["functions"]]
    page.wait_for("document.activeElement.id === 'filter'", "the focus is where the list is")


@pytest.mark.nightly
def test_scale_and_limits_of_the_live_version(page, site, token, program) -> None:
    site.store.deploy_probe(program("node-http"), "scaled", "scaled", "[function.scale]\nmin = 1\nmax = 3\n", "max-request-time = 5\n")
    sign_in(page, site, token, "#scaled")
    page.wait_for_text("#versions", "v1")
    unfold(page, "settings-part")
    assert page.text("#settings-of") == "of v1"
    facts = page.run("Object.fromEntries([...document.querySelectorAll('#settings > div')].map((box) => [...box.children].map((each) => each.innerText)))")
    assert facts["kept machines"] == "1" and facts["most machines"] == "3" and facts["queue"] == "1024 requests"
    assert facts["request without progress"] == "5 s"
    site.store.ok("delete", "scaled", "-y")


@pytest.mark.nightly
def test_an_empty_daemon_says_how_to_begin(page, tmp_path, program) -> None:
    empty = Site(tmp_path, None)
    page.origins.append(empty.origin + "/")
    try:
        page.go(empty.url)
        page.type("#token", empty.token("first", "--scope", "read"))
        page.key_enter()
        page.wait_for_text("#first-steps", "kvmserver init --template")
        assert "kvmserver deploy hello" in page.text("#first-steps") and f"kvmserver login {empty.origin}" in page.text("#first-steps")
        assert "may not deploy" in page.text("#first-steps-note") and page.text("#no-functions") == ""
        empty.store.deploy_probe(program("node-http"), "hello")
        page.wait_for_text("#functions", "hello")
        assert page.text("#first-steps") == ""
    finally:
        empty.daemon.close()


@pytest.mark.nightly
def test_focus_returns_after_a_question(page, site, token) -> None:
    site.store.ok("traffic", "hello", "2=100")
    sign_in(page, site, token, "#hello")
    page.wait_for_text("#versions", "v1")
    page.run("document.querySelector('#roll-back').focus()")
    page.key_enter()
    page.wait_for_text("#confirm-text", "v1")
    assert page.focused() == "confirm-no"
    page.key("Escape", 27)
    page.wait_for("document.activeElement.id === 'roll-back'", "the focus is back")
