#!/usr/bin/env python3
"""Draws what bench/side_by_side.py --json wrote, as SVG.

    bench/charts.py side_by_side.json [--start start.json] [--out docs/charts]

latency.svg and latency-kept.svg: p50 with one connection; throughput.svg and throughput-kept.svg: requests a second by
connections; start.svg: time to the first reply, from bench/start.py --json. Needs matplotlib (python3-matplotlib).
"""
import argparse
import collections
import json
import math
import pathlib
import sys

try:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt
except ImportError:
    sys.exit("charts: matplotlib is missing: apt-get install python3-munkres python3-matplotlib")

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLOURS = {"bare": "#8c8c8c", "run": "#9ecae1", "run-e": "#4292c6", "snaprun-e": "#08519c", "http": "#e6550d"}
PEER = ["#74c476", "#238b45"]
HATCHES, LINES = ["", "//", "xx", "..", "\\\\"], ["-", "--", ":", "-."]
MODES = {"new": ("", "a new connection each"), "keep-alive": ("-kept", "connections kept")}


def style():
    plt.rcParams.update({
        "svg.fonttype": "none", "svg.hashsalt": "kvmserver", "font.family": "sans-serif", "font.size": 9,
        "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 10, "axes.titleweight": "bold", "figure.facecolor": "white",
    })


def save(figure, out, name):
    figure.savefig(out / name, metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)
    print(out / name)


def colour(result):
    return PEER[result["kind"] == "run-e"] if result["peer"] else COLOURS[result["kind"]]


def repeats(results):
    """How many variants before each had its colour: those that differ in warm-up or threads only."""
    seen = collections.Counter()
    for result in results:
        look = (result["kind"], result["peer"])
        yield seen[look]
        seen[look] += 1


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def where(document):
    about = document["host"]
    return f"{about['kvm']} host, {about['cpus']} x {about['cpu']}; medians of {document['settings']['rounds']} rounds, {document['started'][:10]}"


def panels(results, out, name, title, footer, draw):
    """One panel for each program, each with a scale of its own."""
    programs = list(dict.fromkeys(result["program"] for result in results))
    if not programs:
        return
    columns = min(3, len(programs))
    rows = -(-len(programs) // columns)
    variants = len({result["variant"] for result in results})
    figure, axes = plt.subplots(rows, columns, figsize=(3.7 * columns, rows * (0.9 + 0.27 * max(5, variants))), squeeze=False)
    for axis in axes.flat[len(programs):]:
        axis.set_visible(False)
    for axis, program in zip(axes.flat, programs):
        draw(axis, [result for result in results if result["program"] == program])
        axis.set_title(program, loc="left")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    figure.text(0.01, 0, footer, color="#666666", fontsize=7, va="top")
    legend(figure, axes)
    figure.tight_layout(rect=(0, 0.01, 1, 0.98))
    save(figure, out, name)


def draw_latency(axis, results):
    names = [result["variant"] + " *" * result["state_kept"] for result in results]
    bars = axis.barh(names, [result["p50_us"] for result in results], color=[colour(result) for result in results], edgecolor="white", linewidth=0)
    for bar, before in zip(bars, repeats(results)):
        bar.set_hatch(HATCHES[before % len(HATCHES)])
    axis.bar_label(bars, labels=[f"{number(r['p50_us'])}" + (f"  ({r['ratio_p50']:.1f} x)" if r["ratio_p50"] and r["kind"] != "bare" else "") for r in results],
                   padding=3, fontsize=7.5)
    axis.invert_yaxis()
    axis.margins(x=0.55)
    axis.tick_params(axis="y", length=0)
    axis.xaxis.set_visible(False)
    axis.spines["bottom"].set_visible(False)


def draw_throughput(axis, results):
    counts = sorted({result["connections"] for result in results})
    variants = {result["variant"]: result for result in results}
    for (name, look), before in zip(variants.items(), repeats(variants.values())):
        mine = {result["connections"]: result["requests_per_second"] for result in results if result["variant"] == name}
        axis.plot([counts.index(c) for c in mine], list(mine.values()), LINES[before % len(LINES)], marker="o", markersize=4,
                  label=name + " *" * look["state_kept"], color=colour(look))
    axis.set_xticks(range(len(counts)), [str(count) for count in counts])
    axis.set_xlim(-0.3, len(counts) - 0.7)
    axis.set_xlabel("connections")
    axis.set_yscale("log")
    bottom, top = axis.get_ylim()
    axis.set_ylim(10 ** math.floor(math.log10(bottom)), 10 ** math.ceil(math.log10(top)))  # whole decades, so that labels are there
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axis.grid(axis="y", color="#e5e5e5", linewidth=0.6)


def legend(figure, axes):
    """One for all panels."""
    entries = {label: handle for axis in axes.flat for handle, label in zip(*axis.get_legend_handles_labels())}
    if entries:
        figure.legend(entries.values(), entries.keys(), ncols=min(6, len(entries)), loc="upper right", fontsize=8, frameon=False, bbox_to_anchor=(1, 0.005))


def draw_start(out, path):
    results = json.loads(path.read_text())
    if not results:
        return
    figure, axis = plt.subplots(figsize=(7, 0.7 + 0.55 * len(results)))
    for place, (key, name, paint) in enumerate([("bare_ms", "bare", COLOURS["bare"]), ("snaprun_ms", "snaprun -e", COLOURS["snaprun-e"])]):
        bars = axis.barh([row + (place - 0.5) * 0.38 for row in range(len(results))], [result[key] for result in results], 0.36, label=name, color=paint)
        axis.bar_label(bars, labels=[f"{result[key]:.1f}" for result in results], padding=3, fontsize=7.5)
    axis.set_yticks(range(len(results)), [result["program"] for result in results])
    axis.invert_yaxis()
    axis.xaxis.set_visible(False)
    axis.spines["bottom"].set_visible(False)
    axis.legend(frameon=False)
    axis.set_title("ms from the start of the process to its first reply", loc="left")
    save(figure, out, "start.svg")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", type=pathlib.Path)
    parser.add_argument("--start", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/charts")
    options = parser.parse_args()
    document = json.loads(options.json.read_text())
    options.out.mkdir(parents=True, exist_ok=True)
    style()
    measured = [result for result in document["results"] if "not_measured" not in result]
    for mode, (suffix, title) in MODES.items():
        these = [result for result in measured if result["mode"] == mode]
        kept = "; * one invocation a connection, no reset between requests" if mode == "keep-alive" else ""
        panels([result for result in these if result["connections"] == 1], options.out, f"latency{suffix}.svg",
               f"p50 of a request in µs, one connection at a time, {title} (and times the bare program's)", where(document) + kept, draw_latency)
        if len({result["connections"] for result in these}) > 1:
            panels(these, options.out, f"throughput{suffix}.svg", f"requests a second, {title} (logarithmic)", where(document) + kept, draw_throughput)
    if options.start:
        draw_start(options.out, options.start)


if __name__ == "__main__":
    main()
