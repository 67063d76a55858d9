#!/usr/bin/env python3
"""Writes BUILD/files/compile_commands.json: the compiler's words for each source file, for clang-tidy and clangd.

    scripts/file_commands.py BUILD

CMake's own list, BUILD/compile_commands.json, has the files that it makes to compile several sources as one.
"""
import json
import pathlib
import re
import sys


def of_each_source(entry: dict) -> list[dict]:
    file = pathlib.Path(entry["file"])
    if file.parent.name != "Unity":
        return [entry]
    words = entry["command"].replace(f" -c {file}", "")
    return [
        {**entry, "file": source, "command": f"{words} -c {source}"}
        for source in re.findall(r'^#include "(.*)"$', file.read_text(), re.MULTILINE)
    ]


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: scripts/file_commands.py BUILD", file=sys.stderr)
        return 2
    build = pathlib.Path(sys.argv[1])
    entries = json.loads((build / "compile_commands.json").read_text())
    folder = build / "files"
    folder.mkdir(exist_ok=True)
    commands = [each for entry in entries for each in of_each_source(entry)]
    (folder / "compile_commands.json").write_text(json.dumps(commands, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
