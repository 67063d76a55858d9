#!/usr/bin/env python3
"""Adds up what scripts/test.sh ran: FOLDER holds NAME.status, NAME.log and perhaps NAME.xml (JUnit) for each step.

Prints why tests were skipped, the names of those that failed and the last line `N passed, N failed`.
"""
import collections
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree


def cases_of(path: pathlib.Path) -> list[ElementTree.Element] | None:
    if not path.exists():
        return None
    text = path.read_text(errors="replace")
    start = text.find("<?xml")
    text = re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", "?", text[max(start, 0):])
    try:
        return list(ElementTree.fromstring(text).iter("testcase"))
    except ElementTree.ParseError:
        return None


# What a sanitizer or the C++ library says first of what it found; the end of its report is the same every time.
FOUND = re.compile(r"ERROR: \w+Sanitizer|WARNING: ThreadSanitizer|runtime error: |terminate called|Assertion .* failed")


def why(path: pathlib.Path, found_lines: int = 12, last_lines: int = 5) -> str:
    """The lines from what was found on, with its stack, then the log's last ones."""
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    chosen: set[int] = set(range(max(len(lines) - last_lines, 0), len(lines)))
    first = next((number for number, line in enumerate(lines) if FOUND.search(line)), None)
    if first is not None:
        chosen |= set(range(first, min(first + found_lines, len(lines))))
        chosen |= {number for number, line in enumerate(lines) if line.startswith("SUMMARY: ")}
    return "\n".join("        " + lines[number][:200] for number in sorted(chosen))


def main() -> int:
    folder = pathlib.Path(sys.argv[1])
    passed = 0
    failed: list[str] = []
    skips: collections.Counter = collections.Counter()
    for status_file in sorted(folder.glob("*.status"), key=lambda path: path.stat().st_mtime_ns):
        step, status = status_file.stem, status_file.read_text().strip()
        if status.startswith("skipped"):
            skips[f"{step}: {status.removeprefix('skipped').strip()}"] += 1
            continue
        cases = cases_of(folder / f"{step}.xml")
        bad = []
        for case in cases or []:
            name = f"{step}: {case.get('classname', '').removeprefix('tests.e2e.')} {case.get('name')}"
            skipped = case.find("skipped")
            if case.find("failure") is not None or case.find("error") is not None:
                bad.append(name)
            elif skipped is not None:
                skips[f"{step}: {skipped.get('message', 'no reason given')}"] += 1
            else:
                passed += 1
        if cases is None and status == "0":
            passed += 1
        elif status != "0" and not bad:
            bad.append(f"{step}: ended with status {status}\n{why(folder / f'{step}.log')}")
        failed += bad
    for reason, count in skips.items():
        print(f"skipped {count:4}  {reason}")
    for name in failed:
        print(f"FAILED  {name}")
    print(f"{passed} passed, {len(failed)} failed")
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
