#!/usr/bin/env python3
"""What documents for readers must keep; scripts/check.sh runs it.

    scripts/check_docs.py [--self-test]

* No sentence of READABLE has more than MOST_WORDS words. Code blocks are left out, and `code` and a link's text count
  as they are read: `code` is one word.
* No line outside of a table has more than COLUMNS columns, but for one with a URL.
* Every relative link and picture of README.md and docs/ leads to a file that git knows or is about to know, and every
  #anchor to a heading of it.
* docs/README.md names every document of docs/.
* Every picture of docs/pictures has a title and a description, for those who cannot see it.
"""
import re
import subprocess
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

MOST_WORDS, COLUMNS = 30, 120
ROOT = Path(__file__).resolve().parent.parent
READABLE = ["README.md", "docs/README.md", "docs/TUTORIAL.md", "docs/CONCEPTS.md", "docs/COMMANDS.md",
            "docs/TROUBLESHOOTING.md", "docs/UPGRADING.md", "docs/COMPARISON.md", "docs/howto/*.md"]

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(\s*<?([^()\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
HTML_LINK = re.compile(r"<(?:img|a|source)\b[^>]*?\b(?:src|href|srcset)=\"([^\"]+)\"")
FENCE = re.compile(r"^\s*(```|~~~)")
LIST_ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+")


def without_code(text):
    """(number, line) of every line outside of code blocks: fenced ones, and those indented by four columns."""
    lines, fence, before, in_list = [], None, "", False
    for number, line in enumerate(text.splitlines(), 1):
        mark = FENCE.match(line)
        if fence or mark:
            if not fence:
                fence = mark[1]
            elif mark and mark[1] == fence:
                fence = None
            lines.append((number, ""))
            continue
        if line.strip():
            in_list = bool(LIST_ITEM.match(line)) or (in_list and line.startswith(" "))
        indented = line.startswith("    ") and not in_list and (not before.strip() or before.startswith("    "))
        lines.append((number, "" if indented else line))
        before = line
    return lines


def plain(text):
    """What is read aloud."""
    text = re.sub(r"(`+).+?\1", " code ", text)
    text = LINK.sub(lambda link: " " + link[2] + " ", text)
    text = re.sub(r"<[^>]+>", " ", text)
    return text.replace("**", "").replace("*", "")


def blocks(text):
    """(number of the first line, text) of every paragraph, heading, item of a list and cell of a table."""
    start, gathered = 0, []
    for number, line in without_code(text) + [(0, "")]:
        stripped = line.strip().lstrip(">").strip()
        table, alone = stripped.startswith("|"), stripped.startswith("#")
        if gathered and (not stripped or table or alone or LIST_ITEM.match(line)):
            yield start, " ".join(gathered)
            gathered = []
        if table:
            for cell in re.split(r"(?<!\\)\|", re.sub(r"`[^`]*`", "`code`", stripped)):
                yield number, cell.strip()
        elif alone:
            yield number, stripped.lstrip("# ")
        elif stripped:
            if not gathered:
                start = number
            gathered.append(LIST_ITEM.sub("", stripped))


def long_sentences(text):
    for number, block in blocks(text):
        for sentence in re.split(r"(?<=[.!?])[)\"']*\s+", plain(block)):
            words = [word for word in sentence.split() if re.search(r"\w", word)]
            if len(words) > MOST_WORDS:
                yield number, f"{len(words)} words in one sentence: {' '.join(words[:8])} ..."


def long_lines(text):
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > COLUMNS and not line.lstrip().startswith("|") and "://" not in line:
            yield number, f"{len(line)} columns"


def anchors(text):
    """As GitHub makes them."""
    found = set()
    for _, line in without_code(text):
        heading = re.match(r"#{1,6}\s+(.*?)\s*#*$", line)
        if heading:
            title = LINK.sub(lambda link: link[2], heading[1]).lower()
            base = anchor = re.sub(r"[^\w\- ]", "", title).replace(" ", "-")
            count = 0
            while anchor in found:
                count += 1
                anchor = f"{base}-{count}"
            found.add(anchor)
    return found


def links(text):
    # A link may be broken over two lines.
    whole = "\n".join(re.sub(r"`[^`]*`", "", line) for _, line in without_code(text))
    for pattern, group in ((LINK, 3), (HTML_LINK, 1)):
        for link in pattern.finditer(whole):
            yield whole.count("\n", 0, link.start()) + 1, link[group]
            if pattern is LINK:  # a picture that is a link
                for inner in LINK.finditer(link[2]):
                    yield whole.count("\n", 0, link.start()) + 1, inner[3]


def broken_links(path, text, read, exists):
    for number, link in links(text):
        if re.match(r"[a-z][a-z0-9+.-]*:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not exists(target):
            yield number, f"{link} leads nowhere"
        elif anchor and target.suffix == ".md" and anchor not in anchors(read(target)):
            yield number, f"{link}: there is no such heading"


def undescribed(text):
    names = {child.tag.rpartition("}")[2] for child in xml.fromstring(text) if (child.text or "").strip()}
    return [f"has no <{name}>" for name in ("title", "desc") if name not in names]


def self_test():
    words = " ".join(["word"] * 31)
    assert list(long_sentences(words + ".")) and list(long_sentences(f"| a | {words} |")), "a long sentence"
    assert list(long_sentences(f"Short.\n\n* {words[:70]}\n  {words[:85]}")), "an item over two lines"
    for text in (f"```sh\n{words}\n```\n", f"Text.\n\n    {words}\n", f"`{words}`", words[:80] + ". " + words[:80]):
        assert not list(long_sentences(text)), text
    assert list(long_lines("x" * 121)) and not list(long_lines("| " + "x" * 121 + "\nhttps://" + "x" * 121))
    page = Path("/docs/page.md")
    others = {page: "# One `two`, three!\n# Twice\n# Twice\n", Path("/docs/a.svg"): ""}

    def found(text):
        return [link for _, link in broken_links(page, text, others.get, others.__contains__)]

    assert not found("[a](#one-two-three) [b](page.md#twice-1) ![c](a.svg) [d](https://x.y/z) `[e](f)`")
    assert len(found("[a](#one) [b](page.md#twice-2) ![c](b.svg) [d\ne](none.md) <img src=\"c.svg\">")) == 5
    assert undescribed("<svg><title>A</title><desc> </desc></svg>") == ["has no <desc>"]


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return 0
    if sys.argv[1:]:
        print("usage: scripts/check_docs.py [--self-test]", file=sys.stderr)
        return 2
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True,
                            stdout=subprocess.PIPE, text=True).stdout.splitlines()
    files = {ROOT / name for name in listed if (ROOT / name).exists()}
    known = files | {parent for file in files for parent in file.parents}
    documents = [ROOT / "README.md"] + sorted(file for file in files
                                              if file.suffix == ".md" and ROOT / "docs" in file.parents)
    readable = {file for pattern in READABLE for file in ROOT.glob(pattern)}
    complaints = []
    for file in documents:
        text = file.read_text()
        complaints += [(file, *what) for what in broken_links(file, text, Path.read_text, known.__contains__)]
        complaints += [(file, *what) for what in long_lines(text)]
        if file in readable:
            complaints += [(file, *what) for what in long_sentences(text)]
    index = ROOT / "docs/README.md"
    named = {(index.parent / link.partition("#")[0]).resolve() for _, link in links(index.read_text())}
    complaints += [(index, 1, f"does not name {file.relative_to(ROOT)}") for file in documents[1:]
                   if file not in named | {index}]
    for file in sorted(file for file in files if file.parent == ROOT / "docs/pictures" and file.suffix == ".svg"):
        complaints += [(file, 1, what) for what in undescribed(file.read_text())]
    for file, number, what in complaints:
        print(f"{file.relative_to(ROOT)}:{number}: {what}")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
