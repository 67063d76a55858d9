"""What scripts/release.sh adds to the package: third parties, their bill of materials, install.sh, the changelog."""
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys

import harness
import pytest
from harness import BASE_ENVIRONMENT, kvmserver

PACKAGING = harness.ROOT / "packaging"
THIRD_PARTY = harness.ROOT / "scripts/third_party.py"
INSTALL = PACKAGING / "install.sh"
DEBIAN_12 = os.path.exists("/etc/os-release") and "VERSION_CODENAME=bookworm" in open("/etc/os-release").read()
SUM = "0" * 64

needs_build = pytest.mark.skipif(not (DEBIAN_12 and shutil.which("ninja") and (harness.BUILD / "share/man1").exists()),
                                 reason="licences are those of Debian 12's packages, and of a build without a sanitizer")  # fmt: skip


def components() -> list[dict]:
    return json.loads((PACKAGING / "third_party.json").read_text())["components"]  # not in the emulated hosts


def run(*words, **more) -> subprocess.CompletedProcess:
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=harness.PATIENCE * 6,
                          env=os.environ | {"KVMSERVER_BUILD": str(harness.BUILD)}, **more)  # fmt: skip


def test_version_names_the_commit() -> None:
    line = kvmserver("version").out
    assert kvmserver("--version").out == line
    told = re.fullmatch(r"kvmserver (\d+\.\d+\.\d+(?:-dev)?)(?: \(([0-9a-f]{12})(?:, modified)?\))?\n", line)
    assert told, line
    heading = re.search(r"^## (.*)$", (harness.ROOT / "CHANGELOG.md").read_text(), re.M)[1]
    number = told[1].removesuffix("-dev")
    assert heading == f"Unreleased ({number})" or heading.startswith(f"{number} (20"), "CHANGELOG.md begins with this version"


def test_the_version_comes_from_git(folder) -> None:
    """A tag of the version makes a release; anything else is a development build."""
    source, out = folder / "source", folder / "out"
    source.mkdir()

    def git(*words: str) -> str:
        done = run("git", "-C", source, "-c", "user.name=A", "-c", "user.email=a@example.org", *words)
        assert done.returncode == 0, done
        return done.stdout.strip()

    def values(**more: str) -> dict[str, str]:
        given = {"SOURCE": source, "FOLDER": out, "NUMBER": "1.2.3", "COMMIT": ""} | more
        words = [word for name, value in given.items() for word in ("-D", f"{name}={value}")]
        done = run("cmake", *words, "-P", harness.ROOT / "src/cli/version_from_git.cmake")
        assert done.returncode == 0, done
        return dict(re.findall(r'set\(KVMSERVER_(\w+) "(.*)"\)', (out / "version.cmake").read_text()))

    assert values()["VERSION"] == "1.2.3-dev" and values()["COMMIT"] == ""
    assert values(COMMIT="0123456789abcdef")["COMMIT"] == "0123456789abcdef"
    git("init", "-q")
    (source / "file").write_text("1")
    git("add", "file")
    git("commit", "-q", "-m", "1")
    head, day = git("log", "-1", "--format=%H"), git("log", "-1", "--format=%cs").replace("-", "")
    assert values() | {"DATE": ""} == {"VERSION": "1.2.3-dev", "DEBIAN_VERSION": f"1.2.3~dev{day}.{head[:12]}", "COMMIT": head, "DATE": ""}
    git("tag", "v1.2.2")
    assert values()["VERSION"] == "1.2.3-dev"
    git("tag", "v1.2.3")
    assert (values()["VERSION"], values()["DEBIAN_VERSION"]) == ("1.2.3", "1.2.3")
    assert f'"{head[:12]}"' in (out / "version_values.hpp").read_text()
    before = (out / "version_values.hpp").stat().st_mtime_ns
    values()
    assert (out / "version_values.hpp").stat().st_mtime_ns == before, "nothing is compiled when nothing changed"
    (source / "file").write_text("2")
    assert values()["VERSION"] == "1.2.3-dev" and f'"{head[:12]}, modified"' in (out / "version_values.hpp").read_text()


@needs_build
def test_all_that_is_linked_is_in_the_notices() -> None:
    checked = run(THIRD_PARTY, "--check")
    assert checked.returncode == 0, checked.stderr


@needs_build
@pytest.mark.parametrize("missing", ["libseccomp", "toml++", "Zydis and Zycore", "libcurl"])
def test_what_the_table_lacks_is_told(missing: str, folder) -> None:
    """An archive, headers, sources that the build fetched, and a library that is loaded late."""
    table = folder / "table.json"
    table.write_text(json.dumps({"components": [each for each in components() if each["name"] != missing]}))
    checked = run(THIRD_PARTY, "--sbom", folder / "bill.json", "--table", table)
    assert checked.returncode == 1 and "is in the binary and not in packaging/third_party.json" in checked.stderr
    assert not (folder / "bill.json").exists()


@needs_build
def test_what_the_table_has_too_much_is_told(folder) -> None:
    table = folder / "table.json"
    more = {"name": "libnothing", "use": "static", "license": "MIT", "url": "", "packages": ["libnothing-dev"], "copyright": [""]}
    table.write_text(json.dumps({"components": [*components(), more]}))
    checked = run(THIRD_PARTY, "--sbom", folder / "bill.json", "--table", table)
    assert checked.returncode == 1 and "libnothing is in packaging/third_party.json and not in the binary" in checked.stderr


@needs_build
def test_the_bill_of_materials_is_valid(folder) -> None:
    sys.path.insert(0, str(harness.BUILD / "python"))
    jsonschema = pytest.importorskip("jsonschema")
    referencing = pytest.importorskip("referencing")
    schemas = harness.BUILD / "python/cyclonedx/schema/_res"
    if not schemas.exists():
        pytest.skip("the schema is not installed: scripts/setup.sh --tests")
    file = folder / "bill.json"
    made = run(THIRD_PARTY, "--sbom", file)
    assert made.returncode == 0, made.stderr
    bill = json.loads(file.read_text())

    def schema(name: str) -> dict:
        return json.loads((schemas / f"{name}.SNAPSHOT.schema.json").read_text())

    others = [(f"http://cyclonedx.org/schema/{name}.SNAPSHOT.schema.json", referencing.Resource.from_contents(schema(name)))
              for name in ("spdx", "jsf-0.82")]  # fmt: skip
    registry = referencing.Registry().with_resources(others)
    jsonschema.Draft7Validator(schema("bom-1.6"), registry=registry).validate(bill)
    with pytest.raises(jsonschema.ValidationError):
        bad = bill | {"components": [{"name": "x"}]}
        jsonschema.Draft7Validator(schema("bom-1.6"), registry=registry).validate(bad)
    version = {part["name"]: part["version"] for part in bill["components"]}
    for package in ("libssl-dev", "libzstd-dev"):
        assert version[package] == run("dpkg-query", "-W", "-f", "${Version}", package).stdout
    digest = hashlib.sha256(harness.KVMSERVER.read_bytes()).hexdigest()
    assert bill["metadata"]["component"]["hashes"] == [{"alg": "SHA-256", "content": digest}]
    assert f"kvmserver {bill['metadata']['component']['version']}" in kvmserver("version").out


def test_the_changelog_of_the_package(folder) -> None:
    made = run(PACKAGING / "debian/changelog.py", harness.ROOT / "CHANGELOG.md", "0.1.0~dev1", "A B <a@example.org>")
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith("kvmserver (0.1.0~dev1) unstable; urgency=medium\n\n  * Added: ")
    assert all(len(line) <= 80 for line in made.stdout.splitlines())
    (folder / "changelog").write_text(made.stdout)
    if shutil.which("dpkg-parsechangelog"):
        parsed = run("dpkg-parsechangelog", "-l", folder / "changelog")
        assert parsed.returncode == 0 and parsed.stderr == "" and "Version: 0.1.0~dev1\n" in parsed.stdout, parsed


def install(*words, **more) -> subprocess.CompletedProcess:
    return subprocess.run(["sh", str(INSTALL), *map(str, words)], capture_output=True, text=True, timeout=harness.PATIENCE, env=BASE_ENVIRONMENT | more)


@pytest.fixture
def release(folder):
    """A release whose archive is not one; on a host that is right, as far as stubs say so."""
    tools = folder / "tools"
    tools.mkdir()
    for tool, line in {"id": "echo 0", "uname": "case $1 in -m) echo x86_64;; *) echo Linux;; esac", "apt-get": "exit 100",
                       "getconf": "echo glibc 2.35"}.items():  # fmt: skip
        (tools / tool).write_text(f"#!/bin/sh\n{line}\n")
        (tools / tool).chmod(0o755)
    (folder / "kvmserver-1.0.0-linux-x86_64.tar.gz").write_bytes(b"no archive")
    return folder, {"PATH": f"{tools}:/usr/sbin:/usr/bin:/bin"}


@pytest.mark.parametrize("words, error", [
    ([], "usage: "),
    (["--nonsense"], "usage: "),
    (["a", "b"], "usage: "),
    (["--sha256"], "usage: "),
    (["--uninstall", "a"], "usage: "),
    (["--sha256", "12", "a"], "--sha256: '12' is not 64 hexadecimal digits"),
    (["--without-kvm", "/not-there"], "there is no file /not-there/SHA256SUMS"),
    (["--without-kvm", "/not-there.deb"], "there is no /SHA256SUMS to check not-there.deb with: --sha256 HASH"),
    (["--without-kvm", "--sha256", SUM, "/not-there.deb"], "there is no file /not-there.deb"),
    (["--without-kvm", "http://127.0.0.1:1/x.deb"], "over http the sum must be given"),
    (["--without-kvm", "--sha256", SUM, "http://127.0.0.1:1/x.deb"], "http://127.0.0.1:1/x.deb cannot be fetched"),
])  # fmt: skip
def test_install_says_what_is_wrong(words: list[str], error: str, release) -> None:
    folder, environment = release
    done = install(*words, **environment)
    lines = [line for line in done.stderr.splitlines() if not line.startswith(("curl: ", "wget: "))]
    assert done.returncode in (1, 2) and len(lines) == 1 and error in lines[0], done


def test_install_checks_the_sum(release) -> None:
    folder, environment = release
    name = "kvmserver-1.0.0-linux-x86_64.tar.gz"
    wrong = install("--without-kvm", "--sha256", SUM, folder / name, **environment)
    assert wrong.returncode == 1 and "is not what was expected" in wrong.stderr
    (folder / "SHA256SUMS").write_text(f"{SUM}  {name}\n")
    for where in (folder, folder / name):
        wrong = install("--without-kvm", where, **environment)
        assert wrong.returncode == 1 and "is not what was expected" in wrong.stderr, wrong
    (folder / "SHA256SUMS").write_text(f"{SUM}  other.deb\n")
    assert "SHA256SUMS does not name" in install("--without-kvm", folder / name, **environment).stderr
    assert "names no package for this host" in install("--without-kvm", folder, **environment).stderr
    digest = hashlib.sha256(b"no archive").hexdigest()
    (folder / "SHA256SUMS").write_text(f"{digest}  {name}\n")
    assert f"{name} is not a .tar.gz" in install("--without-kvm", folder, **environment).stderr


@pytest.mark.parametrize("tool, line, error", [
    ("uname", "case $1 in -m) echo aarch64;; *) echo Linux;; esac", "kvmserver needs x86-64, this host is aarch64"),
    ("uname", "echo FreeBSD", "kvmserver needs Linux, this is FreeBSD"),
    ("id", "echo 1000", "run it as root: sudo sh install.sh"),
    ("getconf", "echo glibc 2.28", "kvmserver needs glibc 2.31 or newer, this system has 2.28"),
    ("getconf", "exit 1", "kvmserver needs glibc, which this system does not have"),
])  # fmt: skip
def test_install_checks_the_host(tool: str, line: str, error: str, release) -> None:
    folder, environment = release
    (folder / "tools" / tool).write_text(f"#!/bin/sh\n{line}\n")
    done = install(folder, **environment)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1 and error in done.stderr, done
