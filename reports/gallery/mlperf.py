#!/usr/bin/env python3
"""MLPerf Inference v5.1 server runs beside `shardline serve`: asks the program, and writes reports/mlperf.md and its
picture in reports/gallery.

    reports/gallery/mlperf.py build/ci/bin/shardline MEASURED

MEASURED is a folder with mlperf51_server_hopper.csv, a row per submission: its columns are in the page's last section. It
is not part of this project. Lengths of requests, targets, start options and their sources: mlperf_runs.py and the page.
Needs gnuplot."""
import argparse
import math
import pathlib
import subprocess
import tempfile

from mlperf_runs import (FRACTIONS, INVALID, MEASURED, MODELS, ROOT, TARGETS, VARIANTS, Asked, evaluate, group_of, mean,
                         quantiles, read, vary)

LABELS = {"ttft_p50": "TTFT p50", "ttft_p99": "TTFT p99", "tpot_p50": "TPOT p50", "tpot_p99": "TPOT p99"}
QUANTITIES = tuple(LABELS)
NAMES = {"llama2-70b": "Llama-2-70B", "llama3.1-8b": "Llama-3.1-8B", "mixtral-8x7b": "Mixtral-8x7B"}


def median(values):
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def short(seconds):
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def against(ours, theirs):
    return f"{short(ours)} / {short(theirs)} ({ours / theirs:.2f})"


def title(row):
    return f"{NAMES[row['bench']]}, {row['scenario'].lower()}"


def name_of(row):
    system = row["system"].replace("_TRT", "").replace("_vLLM", " (vLLM)").replace("_", " ")
    return f"{row['submitter'].replace('_', ' ')}, {system}" + (f", at {row['accuracy']} accuracy" if row["accuracy"] else "")


def latencies(rows, key="at"):
    out = ["| submission | requests/s | GPUs | TTFT p50 | TTFT p99 | TPOT p50 | TPOT p99 |", "|---|---|---|---|---|---|---|"]
    for r in rows:
        ours = r[key][1] if key == "at" else r[key]
        if ours:
            out.append(f"| {title(r)}: {name_of(r)} | {r['rate']:g} | {r['gpus']} | "
                       + " | ".join(against(ours[q], r[q]) for q in QUANTITIES) + " |")
    return "\n".join(out)


def verdicts(rows):
    word = lambda met: "met" if met else "missed"
    out = ["| submission | requests/s | at that rate | at 95 % | at 90 % |", "|---|---|---|---|---|"]
    for r in rows:
        out.append(f"| {title(r)}: {name_of(r)} | {r['rate']:g} | " + " | ".join(word(r["at"][f]["met"]) for f in FRACTIONS) + " |")
    for r, rate in invalid(rows):
        out.append(f"| {title(r)}: {name_of(r)}, called invalid | {rate:g} | {word(rate <= r['largest'][0] * r['gpus'])} | | |")
    return "\n".join(out)


def offline(rows):
    """Systems by their Offline runs, and the share of those that they serve."""
    out = ["| system | Offline, samples/s of a GPU | the submitted Server rate, of Offline's |", "|---|---|---|"]
    for r in (r for r in rows if r["scenario"] == "Server" and r["of_offline"]):
        ours, theirs = r["played_offline"] / r["gpus"], r["offline"] / r["gpus"]
        out.append(f"| {NAMES[r['bench']]}: {name_of(r)} | {ours:.2f} / {theirs:.2f} ({ours / theirs:.2f}) | {r['rate'] / r['offline']:.1%} |")
    return "\n".join(out)


def tokens_of_step(rate, gpus, bench, step):
    """Of one GPU, by Little's law: requests/s of it, each with its prompt and a token a step of its answer, in a step that
    takes as long as a token."""
    return rate / gpus * sum(mean(quantiles(bench, what)) for what in ("input", "output")) * step


def step_at(points, tokens):
    """Seconds of a step of so many tokens, on straight lines between (tokens, seconds); None beyond them."""
    points = sorted(points)
    for (n0, t0), (n1, t1) in zip(points, points[1:]):
        if n0 <= tokens <= n1 and n1 > n0:
            return t0 + (t1 - t0) * (tokens - n0) / (n1 - n0)
    return None


def steps(asked, rows):
    """A row's tokens a step, seconds of it, and seconds of a played step of as many."""
    out = []
    for r in rows:
        tokens = tokens_of_step(r["rate"], r["gpus"], r["bench"], r["tpot_p50"])
        played = {q: step for (group, gpus), answers in asked.played.items() if group == group_of(r)
                  for q, step in ((tokens_of_step(rate, gpus, r["bench"], a["tpot_p50"]), a["tpot_p50"]) for rate, a in answers.items()
                                  if a["ttft_p50"] < 2)}  # where none wait for long, or Little's law is of those that run alone
        out.append((r, tokens, r["tpot_p50"], step_at(played.items(), tokens)))
    return out


def step_table(found):
    out = ["| submission | tokens a step | played / measured |", "|---|---|---|"]
    for r, tokens, theirs, ours in found:
        if ours:
            out.append(f"| {title(r)}: {name_of(r)} | {tokens:,.0f} | {against(ours, theirs)} |")
    return "\n".join(out)


def offline_ratios(rows):
    """Played over measured, a system once."""
    return list({(r["bench"], r["system"], r["offline"]): r["played_offline"] / r["offline"] for r in rows if r["of_offline"]}.values())


def invalid(rows):
    return [(r, rate) for bench, scenario, submitter, rate in INVALID for r in rows
            if (r["bench"], r["scenario"], r["submitter"]) == (bench, scenario, submitter)]


def capacities(groups):
    out = ["| benchmark | tokens, requests a step | GPU, engine | largest rate per GPU within the targets | best submitted per GPU | ratio "
           "| read in |", "|---|---|---|---|---|---|---|"]
    for own in groups.values():
        r, best = own[0], own[0]["group_best"]
        low, high = r["largest"]
        read_in = f"`{r['file']}`" + ("" if r["own"] else ", another system's") if r["file"] else "not published"
        out.append(f"| {title(r)}{', not counted' if r['why_not'] else ''} | {r['tokens']:,}, {r['requests']:,} | {r['on'][:4].upper()}, {r['engine']} "
                   f"| {low:.1f} to {high:.1f} | {best:.1f} | {(low + high) / 2 / best:.2f} | {read_in} |")
    return "\n".join(out)


def sensitivity(varied):
    keys = list(dict.fromkeys(key for key, _ in varied))
    out = ["| | " + " | ".join(f"{NAMES[k[0]]}, {k[1].lower()}" for k in keys) + " |", "|---|" + "---|" * len(keys)]
    for name, *_ in VARIANTS:
        cells = []
        for k in keys:
            value, base = varied.get((k, name)), varied[k, "as it is"]
            cells.append("-" if value is None else f"{value:.2f}" + ("" if name == "as it is" else f" ({value / base - 1:+.0%})"))
        out.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(out)


def summary(rows, groups, found):
    """The goals of the page, and whether they are met."""
    error = lambda r, ours, q: abs(ours[q] / r[q] - 1)
    out, every = ["| | runs | " + " | ".join(LABELS[q] for q in QUANTITIES) + " | all four |", "|---|---|---|---|---|---|---|"], {}
    for label, ours in (("at the submitted rate", lambda r: r["at"][1]),
                        ("at the same share of the largest rate", lambda r: r["alike"]),
                        ("at the same share of the system's Offline rate", lambda r: r["of_offline"])):
        of = {q: [error(r, ours(r), q) for r in rows if ours(r)] for q in QUANTITIES}
        every[label] = median([e for errors in of.values() for e in errors])
        out.append(f"| {label} | {len(of['ttft_p50'])} | " + " | ".join(f"{median(of[q]):.0%}" for q in QUANTITIES) + f" | {every[label]:.0%} |")
        for scenario in ("Interactive", "Server"):
            some = {q: [error(r, ours(r), q) for r in rows if ours(r) and r["scenario"] == scenario] for q in QUANTITIES}
            if some["ttft_p50"]:
                out.append(f"| - of these {scenario} | {len(some['ttft_p50'])} | " + " | ".join(f"{median(some[q]):.0%}" for q in QUANTITIES)
                           + f" | {median([e for errors in some.values() for e in errors]):.0%} |")
    refused = invalid(rows)
    right = {f: sum(r["at"][f]["met"] for r in rows) for f in FRACTIONS}
    caught = sum(rate > r["largest"][0] * r["gpus"] for r, rate in refused)
    share = (right[1] + caught) / (len(rows) + len(refused))
    off = [abs(sum(own[0]["largest"]) / 2 / own[0]["group_best"] - 1) for own in groups.values() if not own[0]["why_not"]]
    of_steps = [ours / theirs for _, _, theirs, ours in found if ours]
    ratios, goal = offline_ratios(rows), "met" if every["at the submitted rate"] <= .25 else "MISSED"
    lines = [f"- Latencies within 25 % in the median at the submitted rates: **{goal}** ({every['at the submitted rate']:.0%}, of {len(rows)} runs).",
             f"- Verdict right in 90 %: **{'met' if share >= .9 else 'MISSED'}** ({share:.0%}): {right[1]} of {len(rows)} valid runs meet both targets at the submitted "
             f"rate, {right[.95]} at 95 % of it, {right[.9]} at 90 %; {caught} of {len(refused)} rates that submitters call invalid miss one.",
             f"- Largest rate within the targets, of {len(off)} benchmarks and sets of options: {median(off):.0%} off in the median, {max(off):.0%} at most.",
             *([f"- Throughput without arrivals (Offline), of {len(ratios)} runs: played / measured {median(ratios):.2f} in the median, "
                f"{min(ratios):.2f} to {max(ratios):.2f}."] if ratios else []),
             *([f"- Steps of as many tokens, of {len(of_steps)} runs: played / measured {median(of_steps):.2f} in the median, {min(of_steps):.2f} to "
                f"{max(of_steps):.2f}."] if of_steps else [])]
    return "\n".join(lines) + "\n\n" + "\n".join(out)


def picture(asked, groups, path):
    """A panel per group that counts: 99th percentiles over their targets, by requests/s of a GPU."""
    shown = [own for own in groups.values() if not own[0]["why_not"]]
    script = [f'set terminal pngcairo size 1500,{430 * math.ceil(len(shown) / 3)} font "sans,10"\nset output "{path}"',
              f"set multiplot layout {math.ceil(len(shown) / 3)},3",
              "set logscale y\nset yrange [0.05:20]\nset grid\nset key top left\nset xlabel 'requests/s of a GPU'",
              "set ylabel '99th percentile over its target'"]
    for i, own in enumerate(shown):
        first, gpus = own[0], own[0]["fewest"]
        lines = []
        for what, colour, target in (("ttft_p99", "#1f77b4", 0), ("tpot_p99", "#d62728", 1)):
            most = TARGETS[first["bench"], first["scenario"]][target]
            points = sorted((rate / gpus, out[what] / most) for rate, out in asked.played[group_of(first), gpus].items())
            for kind, rows in (("p", points), ("m", sorted((r["rate"] / r["gpus"], r[what] / most) for r in own))):
                script.append(f"${kind}{i}{what} << EOD\n" + "\n".join(f"{x:.6g} {y:.6g}" for x, y in rows) + "\nEOD")
            lines += [f"$p{i}{what} with linespoints lw 2 pt 7 ps 0.4 lc rgb '{colour}' title '{LABELS[what]}, played'",
                      f"$m{i}{what} with points pt 8 ps 1.6 lc rgb '{colour}' title '{LABELS[what]}, measured'"]
        script.append(f'set title "{title(first)}: {first["tokens"]} tokens a step, {first["engine"]}"')
        script.append("plot " + ", ".join(lines) + ", 1 with lines dt 2 lc rgb '#555555' title 'target'")
    script.append("unset multiplot")
    subprocess.run(["gnuplot"], input="\n".join(script) + "\n", text=True, check=True)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("measured", help=f"folder with {MEASURED}")
    parser.add_argument("--render", action="store_true", help="of kept answers, without asking")
    parser.add_argument("--answers", default=str(ROOT / "build" / "mlperf.json"), help="where answers are kept; a command that stands there is not asked again")
    parser.add_argument("-o", "--out", default=str(ROOT / "reports"))
    options = parser.parse_args(arguments)
    out = pathlib.Path(options.out)
    (out / "gallery").mkdir(parents=True, exist_ok=True)
    rows, left, count = read(pathlib.Path(options.measured))
    with tempfile.TemporaryDirectory() as folder:
        asked = Asked(None if options.render else str(pathlib.Path(options.program).resolve()), pathlib.Path(folder),
                      pathlib.Path(options.answers))
        groups = evaluate(asked, rows)
        varied = vary(asked, groups)
    picture(asked, groups, out / "gallery" / "mlperf.png")
    counted, others = [r for r in rows if not r["why_not"]], [r for r in rows if r["why_not"]]
    means = {f"{NAMES[b]} {w}": f"{mean(quantiles(b, w)):.0f}" for b in MODELS for w in ("input", "output")}
    found = steps(asked, counted)
    text = (ROOT / "reports" / "gallery" / "mlperf.md.in").read_text()
    for key, value in {
            "SUMMARY": summary(counted, groups, found), "STEPS": step_table(found), "CAPACITY": capacities(groups), "VERDICTS": verdicts(counted),
            "LATENCIES": latencies(counted), "ALIKE": latencies(counted, "alike"), "OFFLINE": offline(counted),
            "OF_OFFLINE": latencies(counted, "of_offline"), "OTHERS": latencies(others), "SENSITIVITY": sensitivity(varied),
            "WHY_NOT": "\n".join(f"- {why}." for why in dict.fromkeys(r["why_not"] for r in others)),
            "ROWS": f"{len(rows)} of {count} rows", "LEFT": ", ".join(f"{n} {why}" for why, n in left.items()),
            "MEANS": ", ".join(f"{k} {v}" for k, v in means.items())}.items():
        text = text.replace(f"@{key}@", value)
    (out / "mlperf.md").write_text(text)


if __name__ == "__main__":
    main()
