"""tinykvm as a library: each case of tests/e2e/library on this host, and the examples, built from an installed tree."""
import ctypes
import os
import pathlib
import re
import shutil
import subprocess

import harness
import pytest
from harness import kvmserver

CASES = harness.GUESTS / "library_cases"
EXAMPLES = harness.ROOT / "examples"


def names() -> list[str]:
    if not CASES.exists():
        return []
    listed = subprocess.run([CASES, "--list-test-names-only"], capture_output=True, text=True)
    return [line for line in listed.stdout.splitlines() if line]


def run(*words, **more) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=harness.PATIENCE * 10, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.emulated
def test_there_are_cases() -> None:
    assert len(names()) > 30, f"{CASES} is missing: ninja -C build library_cases"


# What takes long on emulated hosts, and concerns the hardware least.
NIGHTLY = {"memory", "an image is saved and restored", "a program whose file has changed since has no symbols", "too many arguments",
           "memory for results is zeroed, wherever it lies and whatever was there before", "a function that is none", "integers of all widths",
           "a thread that computes for ever is not ready", "strings and spans are copied in, and results out",
           "a symbol is found in the program and in its libraries, or it is said why not",
           "files that cannot be restored or saved", "a rehearsal has no effect, and its pages are there first", "time",
           "large arguments take no memory once the call is over", "programs that are never ready", "a symbol counts as ready"}  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.emulated(nightly=name in NIGHTLY)) for name in names()])
def test_case(name) -> None:
    run(CASES, name.replace(",", "\\,"))


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> pathlib.Path:
    """A saved image of the callee; from Python, as any language that can call C."""
    file = tmp_path_factory.mktemp("saved") / "callee.snap"
    library = ctypes.CDLL(str(harness.BUILD / "lib/libtinykvm.so"))
    for function, result in [("program_new", ctypes.c_void_p), ("boot", ctypes.c_void_p), ("save", ctypes.c_int), ("image_free", None), ("program_free", None)]:
        getattr(library, f"tinykvm_{function}").restype = result
    error = ctypes.create_string_buffer(4 + 1024)
    program = ctypes.c_void_p(library.tinykvm_program_new(str(harness.GUESTS / "callee").encode(), error))
    image = ctypes.c_void_p(library.tinykvm_boot(program, error))
    assert image.value, error.raw[4:]
    assert library.tinykvm_save(image, str(file).encode(), None, None, error) == 0, error.raw[4:]
    library.tinykvm_image_free(image)
    library.tinykvm_program_free(program)
    return file


def test_a_saved_image_is_a_snapshot_that_cannot_be_served(saved) -> None:
    inspected = kvmserver("inspect", saved, "--verify")
    assert inspected.status == 0 and "listeners    -" in inspected.out
    for options in [["-e"], [], ["--http"]]:
        refused = kvmserver("snaprun", *options, saved)
        assert refused.status == 7
        (line,) = refused.said
        assert str(saved) in line and "waits for calls of its functions, not for connections" in line and "LIBRARY.md" in line


@pytest.mark.parametrize("options", [[], ["-e"]])
def test_kvmserver_itself_calls_no_functions(options) -> None:
    """There a program that says that it is ready goes on, as without a machine."""
    ended = kvmserver("run", *options, harness.GUESTS / "callee")
    assert "tinykvm_ready: -38" in ended.out and ended.status in (1, 3)


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> pathlib.Path:
    """The library as others get it, moved after its installation."""
    if not shutil.which("cmake"):
        pytest.skip("cmake is not installed: not on the emulated hosts")
    first, then = tmp_path_factory.mktemp("installed") / "first", tmp_path_factory.mktemp("moved") / "then"
    run("cmake", "--install", harness.BUILD, "--prefix", first, "--component", "tinykvm")
    first.rename(then)
    return then


def libraries(prefix: pathlib.Path) -> pathlib.Path:
    (found,) = prefix.glob("**/libtinykvm.so")
    return found.parent


def test_only_the_library_is_installed(installed) -> None:
    files = {str(path.relative_to(installed)) for path in installed.rglob("*") if not path.is_dir()}
    folder = str(libraries(installed).relative_to(installed))
    assert {name for name in files if not name.startswith(folder)} == {
        "include/tinykvm/guest.h", "include/tinykvm/tinykvm.h", "include/tinykvm/tinykvm.hpp"}  # fmt: skip
    assert {f"{folder}/cmake/tinykvm/tinykvm-config.cmake", f"{folder}/cmake/tinykvm/tinykvm-config-version.cmake",
            f"{folder}/pkgconfig/tinykvm.pc"} < files  # fmt: skip


def test_the_library_shows_its_interface_and_nothing_else(installed) -> None:
    header = (harness.ROOT / "include/tinykvm/tinykvm.h").read_text()
    declared = set(re.findall(r"^TINYKVM_API [^;]*?\b(tinykvm_\w+)\(", header, re.M))
    shown = run("nm", "-D", "--defined-only", libraries(installed) / "libtinykvm.so")
    exported = {line.split()[-1].split("@")[0] for line in shown.splitlines() if line.split()[-2] != "A"}
    assert exported == declared and len(declared) > 20
    assert "TINYKVM_0.1" in shown


GREETINGS = [
    "Hello Ada, visitor number 42. It is sunny.",
    "Hello Grace, visitor number 43. It is sunny.",
    "Hello Ada, visitor number 42. It is sunny.",
    "Hello Grace, visitor number 42. It is sunny.",
]


def test_the_example_is_built_by_find_package(installed, tmp_path) -> None:
    build = tmp_path / "embed"
    run("cmake", "-S", EXAMPLES / "embed", "-B", build, f"-DCMAKE_PREFIX_PATH={installed}")
    run("cmake", "--build", build)
    said = run(build / "embed", build / "tenant").splitlines()
    assert said[:4] == GREETINGS
    assert said[4] == "84 / 2: 42"
    assert said[5].startswith("84 / 0: failed: killed by SIGFPE")
    assert said[6] == "think: failed: did not return within 0.1 s"
    assert said[7] == "84 / 4: 21"
    # By itself the tenant is an ordinary program.
    alone = subprocess.run([build / "tenant"], capture_output=True, text=True)
    assert (alone.returncode, alone.stdout) == (1, "This program is run by embed.\n")
    missing = subprocess.run([build / "embed", "/no/such/tenant"], capture_output=True, text=True)
    assert missing.returncode == 1 and missing.stderr.count("\n") == 1 and "/no/such/tenant" in missing.stderr


def test_another_version_is_refused(installed, tmp_path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(p C)\nfind_package(tinykvm 0.2 REQUIRED)\n")
    made = subprocess.run(["cmake", "-S", source, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={installed}"], capture_output=True, text=True)
    assert made.returncode != 0 and '"0.2"' in made.stderr and "version: 0.1.0" in made.stderr


def test_the_example_in_c_is_built_by_pkg_config(installed, tmp_path) -> None:
    environment = dict(os.environ, PKG_CONFIG_PATH=str(libraries(installed) / "pkgconfig"))
    flags = run("pkg-config", "--cflags", "--libs", "tinykvm", env=environment).split()
    assert run("pkg-config", "--modversion", "tinykvm", env=environment) == "0.1.0\n"
    for name in ["embed_c", "tenant"]:
        run("cc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", EXAMPLES / f"embed/{name}.c", "-o", tmp_path / name, *flags)
    found = dict(os.environ, LD_LIBRARY_PATH=str(libraries(installed)))
    said = run(tmp_path / "embed_c", tmp_path / "tenant", env=found).splitlines()
    assert said[0].startswith("84 / 0: failed: killed by SIGFPE")
    assert said[1:] == ["84 / 1: 84", "84 / 2: 42"]


@pytest.mark.parametrize("compiler, standard", [("c++", "c++20"), ("clang++", "c++20"), ("cc", "c99"), ("cc", "c17")])
def test_the_headers_stand_alone(installed, tmp_path, compiler, standard) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    suffix, headers = (".cpp", ["tinykvm.hpp", "tinykvm.h", "guest.h"]) if "++" in compiler else (".c", ["tinykvm.h", "guest.h"])
    for header in headers:
        source = tmp_path / f"{header}{suffix}"
        source.write_text(f"#include <tinykvm/{header}>\n#include <tinykvm/{header}>\nint main(void) {{ return 0; }}\n")
        run(compiler, f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror", "-fsyntax-only",
            f"-I{installed / 'include'}", source)  # fmt: skip
