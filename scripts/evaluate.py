"""Runs the scenario library under every policy and writes docs/evaluation.md's tables.

Usage: evaluate.py WARDROP [--seeds N] [--only NAME,...]

Every scenario as it is; those in which nothing happens, and the public traces (those that
are in scenarios/traces/, see its README), at 60, 80 and 90 % of the engines' capacity.
The best baseline is chosen anew for each figure and each row: nobody could run it.
"""

import argparse
import glob
import json
import math
import os
import subprocess
import sys

OURS = ["optimal", "proportional", "static"]
# Scenarios in which nothing happens, so that their load can be any.
QUIET = ["heterogeneous", "hot-prefix", "sessions", "talk", "world"]
LOADS = ("0.6", "0.8", "0.9")
HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "scenarios")


def simulate(binary, path, seeds, extra):
    out = subprocess.run([binary, "sim", path, "--policies", "all", "--json", "--seeds", str(seeds), *extra], capture_output=True, text=True)
    if not out.stdout:
        sys.exit(f"{path}: {out.stderr}")
    result = json.loads(out.stdout)
    return {p["policy"]: p["runs"] for p in result["policies"]}, result.get("bound", 0)


def mean(runs, *path):
    def one(r):
        for key in path:
            r = r[key]
        return r
    return sum(one(r) for r in runs) / len(runs)


def seconds(x):
    return f"{1000 * x:.3g} ms" if x < 1 else f"{x:.3g} s"


def percent(x):
    return f"{100 * x:.1f} %" if x else ""


def refused(runs):
    return sum(sum(r["shed"]) + r["failed"] + r["left"] for r in runs) / max(1, sum(r["arrived"] for r in runs))


def at(name, util):
    return f"{name} at {100 * float(util):.0f} %"


def jobs(only):
    for path in sorted(glob.glob(os.path.join(HERE, "*.yaml"))):
        name = os.path.splitext(os.path.basename(path))[0]
        if name != "hundred" and (not only or name in only):
            short = ["--for", "10m"] if name == "world" else []
            yield name, path, short
            for util in LOADS if name in QUIET else ():
                yield at(name, util), path, ["--util", util, *short]
    for path in sorted(glob.glob(os.path.join(HERE, "traces", "*.yaml"))):
        name = os.path.splitext(os.path.basename(path))[0]
        if only and name not in only:
            continue
        if not all(os.path.exists(os.path.join(HERE, "traces", f)) for f in files(path)):
            print(f"(left out: {name}, whose trace is not there)", file=sys.stderr)
            continue
        for util in LOADS:
            yield at(name, util), path, ["--util", util]


def files(path):
    import re
    with open(path) as f:
        return re.findall(r"(?:file|lengths): ([\w.]+)", f.read())


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("wardrop")
    a.add_argument("--seeds", type=int, default=3)
    a.add_argument("--only", type=lambda s: s.split(","))
    a = a.parse_args()
    ratios = {"mean": [], "p99": []}
    print("| scenario | optimal: mean, p99, refused or failed | best baseline by mean | by p99 | against them: mean, p99 | hit rate, and the best baseline's | of an oracle's hits | above the fluid bound |")
    print("|---|---|---|---|---|---|---|---|")
    for name, path, extra in jobs(a.only):
        runs, bound = simulate(a.wardrop, path, a.seeds, extra)
        ours = runs["optimal"]
        row = {}
        for figure in ("mean", "p99"):
            best = min((p for p in runs if p not in OURS), key=lambda p: mean(runs[p], "latency", figure))
            value = mean(ours, "latency", figure) / mean(runs[best], "latency", figure)
            ratios[figure].append(value)
            row[figure] = (best, mean(runs[best], "latency", figure), value, refused(runs[best]))
        hits = max(mean(runs[p], "hit_rate") for p in runs if p not in OURS)
        print(f"| {name} | {seconds(mean(ours, 'latency', 'mean'))}, {seconds(mean(ours, 'latency', 'p99'))}, {100 * refused(ours):.2g} % "
              f"| {row['mean'][0]}: {seconds(row['mean'][1])}, {100 * row['mean'][3]:.2g} % refused or failed | {row['p99'][0]}: {seconds(row['p99'][1])} "
              f"| {row['mean'][2]:.2f}x, {row['p99'][2]:.2f}x | {100 * mean(ours, 'hit_rate'):.0f} %, {100 * hits:.0f} % "
              f"| {percent(mean(ours, 'sticky'))} | {percent(mean(ours, 'latency', 'mean') / bound - 1 if name.split(' at ')[0] in QUIET else 0)} |", flush=True)
    for figure, values in ratios.items():
        geometric = math.exp(sum(map(math.log, values)) / len(values))
        print(f"\n{figure}: {geometric:.2f} times the best baseline's in the geometric mean, {max(values):.2f} at worst, {min(values):.2f} at best; "
              f"{sum(v > 1.03 for v in values)} of {len(values)} rows more than 3 % above.")


main()
