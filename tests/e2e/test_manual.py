"""The manual pages, one a command, which the build makes of the tables that --help is made of."""
import gzip
import re
import shutil
import subprocess

import harness
import pytest
from harness import kvmserver

PAGES = harness.BUILD / "share/man1"
pytestmark = pytest.mark.skipif(not PAGES.exists(), reason="no manual was made: scripts/build.sh; a build with a sanitizer makes none")
SECTIONS = ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "ENVIRONMENT", "EXAMPLES", "SEE ALSO"]
COMMANDS = re.findall(r"^  ([a-z]+) ", kvmserver("--help").out.partition("Commands:\n")[2], re.M) if harness.KVMSERVER.exists() else []


def page(name: str) -> str:
    return gzip.decompress((PAGES / f"{name}.1.gz").read_bytes()).decode()


def plain(roff: str) -> str:
    """As a terminal shows it, in wide lines."""
    shown = subprocess.run(["groff", "-man", "-P-cbou", "-Tascii", "-rLL=900n"], input=roff, capture_output=True, text=True, timeout=60)
    assert shown.returncode == 0 and shown.stderr == "", shown
    return shown.stdout


def test_there_is_a_page_for_each_command_and_no_other() -> None:
    assert len(COMMANDS) > 25
    assert {file.name for file in PAGES.iterdir()} == {"kvmserver.1.gz", *(f"kvmserver-{command}.1.gz" for command in COMMANDS)}
    first = page("kvmserver")
    assert first == kvmserver("help", "--man").out
    for command in COMMANDS:
        assert page(f"kvmserver-{command}") == kvmserver("help", "--man", command).out
        assert f"\\fBkvmserver\\-{command}\\fR(1)\n" in first, command


def test_pages_are_packed_without_a_time() -> None:
    for file in PAGES.iterdir():
        head = file.read_bytes()[:10]
        assert head[3] == 0 and head[4:8] == b"\0\0\0\0" and head[8] == 2, f"{file}: gzip -9n"


@pytest.mark.skipif(not shutil.which("groff"), reason="groff is not installed")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_page_names_each_option_and_example(command: str) -> None:
    text = plain(page(f"kvmserver-{command}"))
    headings = re.findall(r"^([A-Z ]+)$", text, re.M)
    assert [each for each in headings if each != "FILES"] == SECTIONS
    options = text.partition("\nOPTIONS\n")[2].partition("\nEXIT STATUS\n")[0]
    words = kvmserver(command, "--help-all").out
    told = re.findall(r"^  (-\w, |    )(--[a-z0-9-]+)", words, re.M)
    assert told
    for letter, option in told:
        assert re.search(rf"^ +{letter.strip() + ' ' if letter.strip() else ''}{option}\b", options, re.M), option
    # And no option that is not there any more.
    assert set(re.findall(r"^ +(?:-\w, )?(--[a-z0-9-]+)", options, re.M)) == {option for _, option in told}
    for example in re.findall(r"^  (\S.*)$", words.partition("\nExamples:\n")[2], re.M):
        assert example in text, example
    for code in range(9):
        assert re.search(rf"^ +{code} +\w", text.partition("\nEXIT STATUS\n")[2], re.M), code


@pytest.mark.parametrize("words", [["groff", "-man", "-z", "-ww", "-Tutf8"], ["mandoc", "-T", "lint", "-W", "warning"]],
                         ids=["groff", "mandoc"])  # fmt: skip
def test_the_tools_find_nothing(words: list[str]) -> None:
    if not shutil.which(words[0]):
        pytest.skip(f"{words[0]} is not installed")
    for file in sorted(PAGES.iterdir()):
        checked = subprocess.run(words, input=gzip.decompress(file.read_bytes()), capture_output=True, timeout=60)
        assert checked.returncode == 0 and checked.stdout + checked.stderr == b"", (file.name, checked)


def test_pages_are_written_where_they_are_wanted(folder) -> None:
    assert kvmserver("help", "--man", "-o", str(folder)).status == 0
    assert len(list(folder.iterdir())) == len(COMMANDS) + 1
    missing = kvmserver("help", "--man", "-o", str(folder / "not-there"))
    assert missing.status == 1 and "not-there" in missing.error
    assert kvmserver("help", "-o", str(folder)).status == 2
    assert kvmserver("help", "--man", "-o", str(folder), "run").status == 2
