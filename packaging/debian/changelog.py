#!/usr/bin/env python3
"""Prints CHANGELOG.md as a Debian changelog: changelog.py CHANGELOG.md VERSION "NAME <ADDRESS>"

VERSION is the package's, and that of the first section. Its date is in its heading, as in "## 0.1.0 (2026-12-01)", or
that of the commit (SOURCE_DATE_EPOCH, else now).
"""
import datetime
import os
import re
import sys
import textwrap


def main(file: str, version: str, contact: str) -> None:
    now = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH") or datetime.datetime.now().timestamp()), datetime.timezone.utc)
    with open(file, encoding="utf-8") as text:
        sections = re.split(r"^## ", text.read(), flags=re.M)[1:]
    for number, section in enumerate(sections):
        heading, _, body = section.partition("\n")
        of = version if number == 0 else heading.split()[0]
        date = re.search(r"\((\d{4}-\d\d-\d\d)\)", heading)
        when = datetime.datetime.fromisoformat(date[1] + "T12:00:00+00:00") if date else now
        print(f"kvmserver ({of}) unstable; urgency=medium\n")
        for part in re.split(r"^### ", body, flags=re.M):
            kind, _, points = part.partition("\n")
            for point in re.findall(r"^- ((?:.+\n?)(?:^  .*\n?)*)", points, re.M):
                print(textwrap.fill(f"{kind}: {' '.join(point.split())}", 78, initial_indent="  * ", subsequent_indent="    "))
        print(f"\n -- {contact}  {when:%a, %d %b %Y %H:%M:%S +0000}\n")


main(*sys.argv[1:])
