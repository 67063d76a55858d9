#!/usr/bin/env python3
"""What of others is in kvmserver: compares packaging/third_party.json with the build, and makes files of it.

    scripts/third_party.py --write            writes THIRD_PARTY_NOTICES and packaging/debian/copyright (on Debian 12)
    scripts/third_party.py --check            fails if something is linked or compiled in that third_party.json does not
                                              name, if it names too much, or if those files are not what --write makes
    scripts/third_party.py --sbom FILE        the same comparison, and a CycloneDX 1.6 document of what was found
        --of PACKAGE                          the package that the binary is in, whose sum is told (the binary itself)
        --target kvmserver_portable           of that binary (kvmserver)
        --root DIR                            the system whose C library it is linked with (/)

The build is build/, or KVMSERVER_BUILD. It is looked at, not believed: the linker is run once more and says which files
it takes (--trace), and ninja knows which headers were read.
"""
import argparse
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import uuid
from urllib.parse import quote

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("KVMSERVER_BUILD", ROOT / "build")).resolve()
TABLE = ROOT / "packaging/third_party.json"
NOTICES = ROOT / "THIRD_PARTY_NOTICES"
COPYRIGHT = ROOT / "packaging/debian/copyright"
COMMON = pathlib.Path("/usr/share/common-licenses")
USES = {"static": "linked into the binary", "headers": "compiled into the binary from headers", "dynamic": "a shared library of the system"}


def die(text: str):
    sys.exit(f"third_party: {text}")


def output(*words, **more) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **more)
    if done.returncode:
        die(f"{' '.join(map(str, words))[:200]}: {done.stderr.strip()[-500:]}")
    return done.stdout


# --- What the build took -------------------------------------------------------------------------------------------


def link_line(target: str) -> list[str]:
    """The words that link it. `target` is a name of ninja's."""
    for command in reversed(output("ninja", "-C", BUILD, "-t", "commands", target).splitlines()):
        for part in command.split(" && "):
            if re.search(r"(^|/)(c\+\+|g\+\+|clang\+\+)[^ ]* .* -o \S+", part) and " -c " not in part:
                return shlex.split(part)
    die(f"no link line for {target}: scripts/build.sh {target}")


def linked_files(words: list[str]) -> set[str]:
    words = list(words)
    with tempfile.TemporaryDirectory() as folder:
        words[words.index("-o") + 1] = f"{folder}/linked"
        traced = output(*words, "-Wl,--trace", cwd=BUILD)
    files = set()
    for line in traced.splitlines():
        name = re.sub(r"^\((.*?)\).*$", r"\1", line.strip())
        name = re.sub(r"\(.*\)$", "", name)
        if name and not name.endswith(".o") or name.startswith("/"):
            files.add(os.path.normpath(BUILD / name))
    return files


def read_headers(objects_of: re.Pattern) -> set[str]:
    headers, ours = set(), False
    for line in output("ninja", "-C", BUILD, "-t", "deps").splitlines():
        if line and not line.startswith(" "):
            ours = bool(objects_of.match(line))
        elif ours and line.strip():
            headers.add(os.path.normpath(BUILD / line.strip()))
    return headers


def owners(files: set[str], root: pathlib.Path) -> dict[str, set[str]]:
    """Debian's packages and the files of each; a file of the build folder that is not ours belongs to the folder's name."""
    found: dict[str, set[str]] = {}
    asked: dict[str, str] = {}
    for file in files:
        path = pathlib.Path(file)
        if path.is_relative_to(BUILD) and not path.is_relative_to(root if root != pathlib.Path("/") else "/nonexistent"):
            top = path.relative_to(BUILD).parts[0]
            if top not in ("src", "tinykvm", "packaging", "version", "bin", "portable"):
                found.setdefault(top + "/", set()).add(file)
        elif not path.is_relative_to(ROOT) or path.is_relative_to(root) and root != pathlib.Path("/"):
            real = os.path.realpath(file)
            inner = "/" + os.path.relpath(real, root) if path.is_relative_to(root) else real
            asked[inner] = file if inner == real or root == pathlib.Path("/") else f"{root}:{file}"
    for base in {"/", str(root)}:
        mine = {inner: file for inner, file in asked.items() if file.startswith(f"{base}:") or (base == "/" and ":" not in file)}
        names = [name for inner in mine for name in {inner, inner.removeprefix("/usr"), "/usr" + inner}]
        done = subprocess.run(["dpkg-query", "--admindir", pathlib.Path(base) / "var/lib/dpkg", "-S", *names], capture_output=True, text=True)
        known = set()
        for line in done.stdout.splitlines():
            package, _, name = line.partition(": ")
            name = name.removeprefix("/usr")
            known.add(name)
            found.setdefault(package.split(",")[0].partition(":")[0], set()).add(name)
        for inner in mine:
            if inner.removeprefix("/usr") not in known:
                die(f"{mine[inner]} is linked or read, and of no Debian package")
    return found


def look(target: str, root: pathlib.Path) -> dict[str, set[str]]:
    """The packages that the binary was made of: package -> files."""
    words = link_line(target)
    if not (BUILD / words[words.index("-o") + 1]).exists():
        die(f"{target} is not built")
    files = linked_files(words) | read_headers(re.compile(r"(src|tinykvm|packaging)/"))
    return owners(files, root)


def compare(components: list[dict], found: dict[str, set[str]], binary: pathlib.Path) -> list[str]:
    wrong = []
    known = {package: component for component in components for package in component["packages"]}
    for package, files in sorted(found.items()):
        if package not in known:
            wrong.append(f"{package} is in the binary and not in packaging/third_party.json, as {min(files, key=lambda file: (not file.endswith('.a'), file))}")
    for component in components:
        if not any(package in found for package in component["packages"]):
            wrong.append(f"{component['name']} is in packaging/third_party.json and not in the binary")
    # An archive that is linked is more than headers.
    for package, component in known.items():
        parts = component.get("static_parts", ())
        archives = [file for file in found.get(package, ()) if file.endswith(".a") and os.path.basename(file) not in parts]
        if archives and component["use"] != "static":
            wrong.append(f"{component['name']}: packaging/third_party.json says {component['use']}, but {archives[0]} is linked")
    names = set(re.findall(rb"\blib[A-Za-z0-9_+-]+\.so\.[0-9]+", binary.read_bytes()))
    loads = {name for component in components for name in component.get("loads", ())}
    needed = set(re.findall(r"NEEDED +(\S+)", output("objdump", "-p", binary)))
    for name in sorted({name.decode() for name in names} - loads - needed):
        wrong.append(f"the binary names {name}, which packaging/third_party.json does not (`loads`)")
    system = re.compile(r"(libc|libm|libdl|libpthread|librt)\.so\.|ld-linux")
    wrong += [f"the binary needs {name}" for name in sorted(needed) if not system.match(name)]
    return wrong


# --- Licence texts -------------------------------------------------------------------------------------------------


def stanza(package: str, licence: str) -> str:
    """The text of a licence in Debian's machine-readable copyright file, not indented."""
    text = (pathlib.Path("/usr/share/doc") / package / "copyright").read_text()
    for each in re.split(r"\n[ \t]*\n(?=\S)", text):
        head, _, body = each.partition("\n")
        if re.fullmatch(rf"License:\s*{re.escape(licence)}", head.strip()) and body.strip():
            lines = [re.sub(r"^\s*\.$", "", line) for line in body.split("\n")]
            while lines and re.match(r"[A-Z][\w-]*:", lines[-1]):
                lines.pop()
            shift = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
            return "\n".join(line[shift:].rstrip() for line in lines).strip("\n")
    die(f"no text of {licence} in the copyright file of {package}")


def gcc_exception() -> str:
    text = pathlib.Path("/usr/share/doc/libstdc++-12-dev/copyright").read_text()
    return text[text.index("GCC RUNTIME LIBRARY EXCEPTION") :].split("\n\f")[0].partition("\n\nThe quadmath")[0].partition("\n\nlibquadmath")[0].strip()


def texts_of(component: dict) -> list[str]:
    texts = [stanza(component["packages"][0], licence) for licence in component.get("texts", ())]
    return texts + ([gcc_exception()] if component.get("exception") else [])


def notices(components: list[dict]) -> str:
    text = ["kvmserver is under the Apache License 2.0 (LICENSE). Its binary contains, or needs, the following works of others.",
            "Made by scripts/third_party.py --write.", ""]  # fmt: skip
    for component in components:
        text += ["-" * 100, component["name"], component["url"], "", f"Use:       {USES[component['use']]}", f"Licence:   {component['license']}"]
        text += [f"Copyright: {each}" for each in component["copyright"]]
        text += [component["note"]] if "note" in component else []
        text += [f"The text of {name} is at the end." for name in component.get("common", ())]
        for each in texts_of(component):
            text += ["", each]
        text.append("")
    for name in sorted({name for component in components for name in component.get("common", ())}):
        text += ["=" * 100, name, "", (COMMON / name).read_text().strip("\n"), ""]
    return re.sub(r"[ \t\f]+\n", "\n", "\n".join(text))


def indented(text: str) -> str:
    return "\n".join(" " + line.rstrip() if line.strip() else " ." for line in text.split("\n"))


def debian_copyright(components: list[dict]) -> str:
    """Debian's copyright-format 1.0. Its Files are those of the package; what is in the binary is told one by one."""
    own = "Apache-2.0"
    header = ["Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/", "Upstream-Name: kvmserver",
              "Comment: Made by scripts/third_party.py --write.", "",
              "Files: *", "Copyright: 2026 the kvmserver authors", f"License: {own}"]  # fmt: skip
    licences = {own: common_text("Apache-2.0")}
    holders, uses = ["2026 the kvmserver authors"], []
    for component in components:
        short = component["license"].replace(" WITH ", " with ")
        if component.get("texts"):
            short += "-" + re.sub(r"[^A-Za-z0-9.+]+", "-", component["name"]).strip("-")
        short = re.sub(r"(GCC|Linux-syscall)-(exception-[0-9.]+|note)$", r"\1 exception", short)
        holders += [f"{each} ({component['name']})" for each in component["copyright"]]
        uses.append(f" {component['name']}: {component['license']}, {USES[component['use']]}. {component['url']}")
        parts = texts_of(component) + [common_text(name) for name in component.get("common", ())]
        licences.setdefault(short, "\n\n".join(parts))
    paragraphs = ["\n".join(header), "\n".join(["Files: usr/bin/kvmserver", "Copyright: " + "\n           ".join(holders),
                                                "License: " + " and ".join(licences), "Comment:", *uses])]  # fmt: skip
    paragraphs += [f"License: {name}\n{indented(text)}" for name, text in licences.items()]
    return "\n\n".join(paragraphs) + "\n"


def common_text(name: str) -> str:
    return f"On Debian systems, the text of this licence is in\n/usr/share/common-licenses/{name}."


# --- Bill of materials ---------------------------------------------------------------------------------------------


def facts_of(package: str, root: pathlib.Path) -> dict:
    form = "${Version}\t${source:Package}\t${source:Version}\t${Architecture}"
    for base in (root, pathlib.Path("/")):
        done = subprocess.run(["dpkg-query", "--admindir", base / "var/lib/dpkg", "-W", "-f", form, package], capture_output=True, text=True)
        if done.returncode == 0 and done.stdout.split("\t")[0]:
            version, source, source_version, architecture = done.stdout.split("\t")
            release = re.search(r'VERSION_CODENAME="?([a-z]+)', (base / "etc/os-release").read_text())
            return {"version": version, "source": source, "source_version": source_version, "architecture": architecture,
                    "release": release[1] if release else ""}  # fmt: skip
    die(f"dpkg does not know {package}")


def licence_entry(component: dict) -> dict:
    licence = component["license"]
    if " " in licence:
        return {"expression": licence}
    return {"license": {"id": licence}}


def bill(components: list[dict], found: dict[str, set[str]], package: pathlib.Path, root: pathlib.Path) -> dict:
    values = dict(re.findall(r'set\((\w+) "(.*)"\)', (BUILD / "version/version.cmake").read_text()))
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    about = [{"name": "kvmserver:file", "value": package.name}, {"name": "kvmserver:commit", "value": values["KVMSERVER_COMMIT"]}]
    top = {"type": "application", "bom-ref": "kvmserver", "name": "kvmserver", "version": values["KVMSERVER_VERSION"],
           "licenses": [{"license": {"id": "Apache-2.0"}}], "hashes": [{"alg": "SHA-256", "content": digest}], "properties": about}  # fmt: skip
    parts = []
    for component in components:
        for each in component["packages"]:
            if each not in found:
                continue
            entry = {"type": "library", "bom-ref": each, "name": each.strip("/"), "licenses": [licence_entry(component)],
                     "scope": "required", "description": f"{component['name']}: {USES[component['use']]}",
                     "externalReferences": [{"type": "website", "url": component["url"]}]}  # fmt: skip
            if each.endswith("/"):
                entry |= {"version": component["version"], "purl": f"pkg:github/zyantific/zydis@v{component['version']}"}
            else:
                facts = facts_of(each, root)
                entry |= {"version": facts["version"],
                          "purl": f"pkg:deb/debian/{quote(each)}@{quote(facts['version'], '~')}"
                                  f"?arch={facts['architecture']}&distro={facts['release']}",
                          "properties": [{"name": "debian:source", "value": f"{facts['source']} {facts['source_version']}"}]}  # fmt: skip
            parts.append(entry)
    serial = uuid.uuid5(uuid.NAMESPACE_OID, digest)  # the same package has the same document
    return {"$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", "bomFormat": "CycloneDX", "specVersion": "1.6",
            "serialNumber": f"urn:uuid:{serial}", "version": 1,
            "metadata": {"timestamp": values["KVMSERVER_DATE"] + "T00:00:00Z", "component": top},
            "components": parts,
            "dependencies": [{"ref": "kvmserver", "dependsOn": [part["bom-ref"] for part in parts]}]}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="see the file's head")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true")
    what.add_argument("--check", action="store_true")
    what.add_argument("--sbom", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--of", type=pathlib.Path, metavar="PACKAGE")
    parser.add_argument("--target", default="kvmserver")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path("/"))
    parser.add_argument("--table", type=pathlib.Path, default=TABLE)
    asked = parser.parse_args()
    components = json.loads(asked.table.read_text())["components"]
    files = {NOTICES: notices, COPYRIGHT: debian_copyright}
    if asked.write:
        for file, make in files.items():
            file.write_text(make(components))
        return
    root = asked.root.resolve()
    words = link_line(asked.target)
    binary = BUILD / words[words.index("-o") + 1]
    found = look(asked.target, root)
    wrong = compare(components, found, binary)
    if asked.check:
        for file in files:
            text = file.read_text()
            wrong += [f"{file.name} does not name {each['name']}: --write" for each in components if each["name"] not in text]
    for line in wrong:
        print(f"third_party: {line}", file=sys.stderr)
    if wrong:
        sys.exit(1)
    if asked.sbom:
        asked.sbom.write_text(json.dumps(bill(components, found, asked.of or binary, root), indent=2) + "\n")
    print(f"third_party: {len(found)} packages, all in {asked.table.name}")


main()
