#!/usr/bin/env python3
"""Writes docs/SYSCALLS.md from the comments of tinykvm/guest/table.cpp, which has a row for each system call.

    scripts/syscalls.py           writes it
    scripts/syscalls.py --check   says what does not fit, and changes nothing; the status is then 1

Behind each row stands the call's name and how far it goes:

    rows[0] = sys_read; // read: full
    rows[8] = sys_lseek; // lseek: partial: what it does not do
    ... // NAME: stub: why an answer without an effect is harmless
    ... // NAME: refused: the error that it gives
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
TABLE = ROOT / "tinykvm/guest/table.cpp"
DOCUMENT = ROOT / "docs/SYSCALLS.md"
NUMBERS = pathlib.Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
KINDS = {
    "full": "does what Linux does, as far as a program in the machine can tell",
    "partial": "does what programs use it for; what it does not do is said",
    "stub": "answers without an effect; why that is harmless is said",
    "refused": "gives the error that is said, on purpose: programs have another way",
}
ROW = re.compile(r"\s+rows\[(\d+)\] = \w+;(.*)")
COMMENT = re.compile(r" // (\w+): (?:(full)|(partial|stub|refused): (.+))$")


class Wrong(Exception):
    pass


def names():
    """Of x86-64, by number."""
    found = re.findall(r"#define __NR_(\w+) (\d+)", NUMBERS.read_text())
    return {int(number): name for name, number in found}


def rows():
    known, found = names(), {}
    for at, line in enumerate(TABLE.read_text().splitlines(), 1):
        if not (row := ROW.match(line)):
            continue
        number, place = int(row[1]), f"{TABLE.relative_to(ROOT)}:{at}"
        comment = COMMENT.match(row[2])
        if not comment:
            raise Wrong(f"{place}: behind the row belongs `// NAME: full`, or partial, stub or refused and what (see scripts/syscalls.py)")
        name, kind = comment[1], comment[2] or comment[3]
        # A number that is newer than this host's headers cannot be checked.
        if known.get(number, name) != name:
            raise Wrong(f"{place}: {number} is {known[number]}, not {name}")
        if number in found:
            raise Wrong(f"{place}: a second row of {number}")
        found[number] = (name, kind, comment[4] or "")
    return found


def document(found):
    counts = {kind: sum(row[1] == kind for row in found.values()) for kind in KINDS}
    text = "# System calls\n"
    text += "Made by `scripts/syscalls.py` from `tinykvm/guest/table.cpp`; `scripts/check.sh` compares the two.\n\n"
    text += "| word | how many | a call of that kind |\n|---|---|---|\n"
    text += "".join(f"| {kind} | {counts[kind]} | {meaning} |\n" for kind, meaning in KINDS.items())
    text += "\nA call that is not here gives ENOSYS. Some are answered within the machine, others by the host for it\n"
    text += "([ARCHITECTURE.md](ARCHITECTURE.md)): a program cannot tell. *Own files* are those of the machine's own /tmp and\n"
    text += "/dev/shm, *host files* all others.\n\n"
    text += "| call | number | support | what a program must know |\n|---|---|---|---|\n"
    for number, (name, kind, what) in sorted(found.items(), key=lambda row: row[1][0]):
        text += f"| {name} | {number} | {kind} | {what.replace('|', chr(92) + '|')} |\n"
    return text


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    try:
        text = document(rows())
    except Wrong as wrong:
        sys.exit(f"syscalls: {wrong}")
    if not sys.argv[1:]:
        DOCUMENT.write_text(text)
    elif not DOCUMENT.exists() or DOCUMENT.read_text() != text:
        sys.exit(f"syscalls: {DOCUMENT.relative_to(ROOT)} is not what {TABLE.relative_to(ROOT)} says: run scripts/syscalls.py")


if __name__ == "__main__":
    main()
