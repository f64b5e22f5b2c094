#!/usr/bin/env python3
"""What README.md says of errors is what reports/accuracy.md and mlperf.md have, and what it says of mutations what is tried.

Usage: readme_numbers.py ROOT. Checks first, on a made-up sentence, that another number is found.
"""
import os
import re
import sys


def one(pattern, text, where):
    found = re.search(pattern, text)
    if not found:
        sys.exit(f"{where}: nothing like {pattern}")
    return found.groups()


def span(values):
    low, high = round(min(values)), round(max(values))
    return f"{low} %" if low == high else f"{low} to {high} %"


def expected(accuracy, mutations, mlperf):
    goals = one(r"(\d+) variants: (\d+) meet their goal, (\d+) miss it", accuracy, "accuracy.md")
    (latency,) = one(r"Latencies within 25 % in the median at the submitted rates: \S+ \((\d+)%", mlperf,
                     "mlperf.md")
    (rate,) = one(r"Largest rate within the targets, of 7 .*: (\d+)% off in the median", mlperf, "mlperf.md")
    rows = re.findall(r"\| TPOT of all rows \| \d+ \| ([\d.]+) \| ([\d.]+) \|", accuracy)
    first = re.findall(r"\| TTFT \(drawn lengths\) of at most 4 users \| \d+ \| ([\d.]+) \|", accuracy)
    names = re.findall(r'Mutation\{"([a-z_]+)"', mutations)
    if len(rows) != 3 or not first or not names:
        sys.exit("accuracy.md: not three engines with errors of TPOT, or none of TTFT; or no mutations")
    return [
        f"Of {goals[0]} fits of kernels and messages {goals[1]} meet their goal",
        f"{goals[2]} miss it",
        f"median error {span([float(m) for m, _ in rows])}, 90th percentile {span([float(h) for _, h in rows])}",
        f"{span([float(m) for m in first])} of at most four users",
        f"{len(set(names))} ways to break a schedule",
        f"the largest rate is {rate} % off, latencies near it are {latency} %",
        f"(largest rate {rate} %, latencies {latency} %)",
    ]


def missing(text, sentences):
    text = re.sub(r"\s+", " ", text)
    return [s for s in sentences if s not in text]


def main():
    if missing("of 9\n fits", ["of 9 fits"]) or not missing("of 8 fits", ["of 9 fits"]):
        sys.exit("readme_numbers.py does not find another number")
    read = lambda *path: open(os.path.join(sys.argv[1], *path), encoding="utf-8").read()
    wanted = expected(read("reports", "accuracy.md"), read("cuda_probe", "execute", "cpu", "mutations.cpp"),
                      read("reports", "mlperf.md"))
    for sentence in missing(read("README.md"), wanted):
        print(f"README.md does not say: {sentence}")
    sys.exit(1 if missing(read("README.md"), wanted) else 0)


main()
