"""What axe-core says of the page: nothing, in light and dark, on a desk and on a phone."""
import json
import time

import harness
import pytest
from test_ui_forms import invoke, unfold
from ui_site import page, sign_in, site, token  # noqa: F401

AXE = harness.BUILD / "axe/node_modules/axe-core/axe.min.js"
PARTS = ("settings-part", "invoke-part", "traffic-part", "env-part", "secret-part")
WIDE = "document.documentElement.scrollWidth > innerWidth || [...document.querySelectorAll('body *')].some((each) => each.checkVisibility() && each.getBoundingClientRect().right > innerWidth + 1)"


def check(page, where: str, found: list[str]) -> None:
    """By the DevTools protocol, which the page's policy does not bind."""
    if page.run("typeof axe") != "object":
        page.call("Runtime.evaluate", expression=AXE.read_text())
    result = page.run("axe.run(document).then(({ violations, passes }) => [passes.length, violations.map((one) => [one.id, one.help, one.nodes.map((node) => node.html.slice(0, 160))])])")
    assert result[0] > 10, "it looked at something"
    found += [f"{where}: {json.dumps(one)}" for one in result[1]]
    if page.run(WIDE):
        found.append(f"{where}: it scrolls sideways")


@pytest.mark.skipif(not AXE.exists(), reason=f"there is no {AXE}: scripts/setup.sh --tests")
@pytest.mark.parametrize(
    ("scheme", "width"),
    [
        pytest.param("light", 1280, marks=pytest.mark.nightly),
        pytest.param("light", 360, marks=pytest.mark.nightly),
        ("dark", 1280),
        pytest.param("dark", 360, marks=pytest.mark.nightly),
    ],
)
def test_axe_finds_nothing(page, site, scheme, width) -> None:
    page.size(width, 800, mobile=width < 500)
    page.colors(scheme)
    found: list[str] = []
    site.store.ok("traffic", "hello", "1=30", "2=70")
    site.store.ok("env", "set", "hello", "GREETING=hello " + "x" * 300)
    site.store.ok("secret", "set", "hello", "KEY", "--stdin", stdin=b"hush")
    site.daemon.text("hello", "/say/something")
    site.daemon.ask("hello", "/die")
    page.go(site.url)
    page.wait_for("!document.querySelector('#login').hidden", "the page asks for a token")
    check(page, "the question for the token", found)
    every = site.token(f"every-{scheme}-{width}", "--scope", "admin")
    sign_in(page, site, every)
    page.wait_for_text("#logs-state", "following")
    check(page, "the list", found)
    sign_in_again = "location.hash = '#hello'"
    page.run(sign_in_again)
    page.wait_for_text("#versions", "v1")
    unfold(page, *PARTS)
    page.wait_for_text("#secret-list", "KEY")
    page.wait_for_text("#failures", "/die")
    page.fill("#invoke-path", "name")
    page.click("#invoke-send")
    page.wait_for_text("#invoke-path-wrong", "/")
    for form in ("env", "secret"):
        page.click(f"#{form}-set")
        page.wait_for_text(f"#{form}-name-wrong", "letters")
    page.click("#logs-requests")
    page.wait_for_text("#logs", "something")
    check(page, "a function, with fields that are wrong", found)
    invoke(page, "/headers", "Status 200")
    check(page, "a function, with a reply", found)
    for button, title in (("#roll-back", "Roll back"), ("#traffic-form button", "Change the traffic"), ("#env-list button:last-child", "Unset the variable"),
                          ("#secret-list button:last-child", "Unset the secret"), ("#delete", "Delete")):
        page.click(button)
        page.wait_for_text("#confirm-title", title)
        if button == "#delete":
            page.key_enter()
            page.wait_for_text("#confirm-name-wrong", "This is not hello.")
        check(page, f"the dialog of {button}", found)
        if button in ("#traffic-form button", "#env-list button:last-child"):  # and its answer, good or bad
            if "env" in button:
                stamp = str(time.monotonic_ns())
                site.store.ok("env", "set", "hello", f"OTHER={stamp}")
            page.click("#confirm-yes")
            page.wait_for_text("#confirm-result", "Done" if "traffic" in button else "Precondition")
            check(page, f"the answer to {button}", found)
            # The list is made anew, and gives the focus to the same button of it, which scrolls.
            page.wait_for_text("#env-list", stamp if "env" in button else "GREETING")
        page.click("#confirm-no")
        # What had the focus may be gone: it is given to its successor in the next frame, which scrolls.
        page.wait_for("!document.querySelector('#confirm').open && document.activeElement !== document.body", "the dialog is gone, and the focus back")
    page.fill("#filter", "nothing has this")
    page.wait_for_text("#no-functions", "No function")
    check(page, "an empty list", found)
    assert not found, "\n".join(found)
