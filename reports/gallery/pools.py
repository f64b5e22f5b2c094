#!/usr/bin/env python3
"""Do prompts belong on GPUs of their own? Asks the program, and writes reports/pools.md and its pictures in
reports/gallery.

    reports/gallery/pools.py build/ci/bin/shardline --traces FOLDER [--only published,traces,lengths] [--go-on]

Every number on the page is one of `shardline serve --json`, `plan --slo --json` or `sweep --json`; questions stand in the
tables below. FOLDER holds mooncake.csv and azure_code.csv, as serve takes them (see pools.md). Needs gnuplot."""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = {"deepseek-v3.2": "DeepSeek-V3.2", "deepseek-r1": "DeepSeek-R1", "llama-3.1-405b": "Llama-3.1-405B",
          "qwen3-235b-a22b": "Qwen3-235B"}

# Published: Dynamo's own example, Llama-70B FP8 by vLLM on one and two nodes of 8 H100, 3,000 tokens in, 150 out.
PUBLISHED = ["llama-3.1-70b", "--system", "h100-hgx", "--input", "3000", "--output", "150", "--engine", "vllm",
             "--set", "precision={weights: fp8, kv: bf16, math: fp8, activations: bf16, head: bf16}"]
LEAST = (20, 30, 40, 50, 60, 80)  # tokens/s/user
TTFT_S = 3  # mean, at most: without a limit most users of pairs queue for their prompts
USERS = [4, 8, 16, 32, 48, 64, 96, 128, 192, 256]
TP = {n: f"tensor:tpa={n},tpf={n}" if n > 1 else "tensor" for n in (1, 2, 4, 8)}

# Traffic of `plan --slo`: what says the requests, and TTFT's target; per model the rate, in requests/s.
LOADS = {
    "Azure code": (["--trace", "azure_code.csv", "--input", "2K", "--output", "30"], "ttft p90 1 s",
                   {"deepseek-v3.2": 4, "deepseek-r1": 4, "llama-3.1-405b": 2, "qwen3-235b-a22b": 8}),
    "Mooncake": (["--trace", "mooncake.csv", "--input", "12K", "--output", "350"], "ttft p90 10 s",
                 {"deepseek-v3.2": 0.8, "deepseek-r1": 1.6, "llama-3.1-405b": 0.4}),
    "8K + 1K": (["--input", "8K", "--output", "1K", "--lengths", "drawn"], "ttft p90 5 s",
                {"deepseek-v3.2": 1.5, "deepseek-r1": 2.5, "llama-3.1-405b": 0.6, "qwen3-235b-a22b": 4}),
    "64K + 1K": (["--input", "64K", "--output", "1K", "--lengths", "drawn"], "ttft p90 30 s",
                 {"deepseek-v3.2": 0.15, "deepseek-r1": 0.3, "llama-3.1-405b": 0.08}),
}
TPOT_MS = [20, 30, 45, 70, 120, 250]
POOLS = {"one": "together", "two": "apart"}
GREY, BLUE, RED = "#555555", "#1f77b4", "#d62728"
MOST_GPUS, REQUESTS = 64, 600

# Long prompts in closed form: `sweep`, whose pools may share prompts by context parallelism or decode over a shared cache.
LENGTHS = {"8K": "8Ki", "64K": "64Ki", "256K": "256Ki", "1M": "1000000"}
FORMS = {
    "SGLang on H200": ("h200-hgx", "sglang", "[tensor, pipeline, dp_ep]",
                       {"apart": "[tensor, pipeline, dp_ep]", "apart, prompts shared by ranks": "[allgather_kv]"}),
    "TensorRT-LLM on GB200": ("gb200-nvl72", "trtllm", "[tensor, pipeline, dp_ep]", {"apart": None}),
    "TensorRT-LLM on GB200, Helix": ("gb200-nvl72", "trtllm", "[tensor, pipeline, dp_ep, helix]", {"apart": None}),
}


def ask(program, arguments, cwd=ROOT, may_fail=False):
    out = subprocess.run([program, *arguments, "--json"], cwd=cwd, capture_output=True, text=True)
    if out.returncode not in (0, 3) or not out.stdout:
        if may_fail:
            return None
        sys.exit(f"{' '.join(arguments)}\n{out.stderr}")
    return json.loads(out.stdout)


def deployments(gpus):
    """Of so many GPUs: replicas that do both, and pairs that use all of them."""
    for n in (1, 2, 4, 8):
        yield {"together": True, "gpus": gpus, "plan": TP[n], "replicas": gpus // n, "prefill": None}
    for p in (1, 2, 4, 8):
        for d in (2, 4, 8):
            for b in range(1, gpus // d):
                rest = gpus - b * d
                if rest % p == 0 and rest // p <= 8:
                    yield {"together": False, "gpus": gpus, "plan": TP[d], "replicas": b, "prefill": TP[p],
                           "prefill_replicas": rest // p}


def published(program):
    rows = []
    for gpus in (8, 16):
        for users in USERS:
            for d in deployments(gpus):
                pair = ["--prefill", d["prefill"], "--prefill-replicas", str(d["prefill_replicas"])] if d["prefill"] else []
                answer = ask(program, ["serve", *PUBLISHED, "--gpus", str(gpus), "--plan", d["plan"], "--replicas",
                                       str(d["replicas"]), *pair, "--users", str(users * gpus // 8), "--requests",
                                       str(max(200, 5 * users))], may_fail=True)
                if answer is None:
                    continue
                tpot = next(l for l in answer["latencies"] if l["latency"] == "TPOT")
                ttft = next(l for l in answer["latencies"] if l["latency"] == "TTFT")
                rows.append({**d, "users": users, "tpot": tpot["mean_s"], "ttft": ttft["mean_s"],
                             "per_gpu": answer["output_tokens_per_s_gpu"]["value"]})
        print("published", gpus, len(rows), flush=True)
    return rows


def traces(program, folder, kept, goes_on):
    """An hour of questions: those that are answered are kept as they come, and need not be asked again."""
    rows = json.loads(kept.read_text()) if goes_on and kept.exists() else []
    for load, (arguments, ttft, rates) in LOADS.items():
        arguments = [str(folder / a) if a.endswith(".csv") else a for a in arguments]
        for model, rate in rates.items():
            for pools in POOLS:
                if any((r["load"], r["model"], r["pools"]) == (load, model, pools) for r in rows):
                    continue
                for tpot in TPOT_MS:
                    answer = ask(program, ["plan", model, "--system", "h200-hgx", "--gpus", str(MOST_GPUS), "--engine", "vllm",
                                           *arguments, "--rate", f"{rate}/s", "--requests", str(REQUESTS), "--pools", pools,
                                           "--slo", f"{ttft}, tpot p99 {tpot} ms"], may_fail=True)
                    best = answer["deployment"]["cheapest"][0] if answer and answer["deployment"]["cheapest"] else None
                    row = {"load": load, "model": model, "pools": pools, "target": tpot, "best": None}
                    if best:
                        p99 = next(t["measured_s"] for t in best["targets"] if t["latency"] == "TPOT")
                        row["best"] = {"gpus": best["gpus"], "p99": p99, "per_gpu": best["goodput_per_s"] / best["gpus"],
                                       "low": best["tpot_low"], "high": best["tpot_high"], "plan": best["plan"],
                                       "replicas": best["replicas"], "prefill": best["prefill"],
                                       "prefill_replicas": best["prefill_replicas"]}
                    rows.append(row)
                kept.write_text(json.dumps(rows) + "\n")
                print(load, model, pools, [r["best"] and r["best"]["gpus"] for r in rows[-len(TPOT_MS):]], flush=True)
    return rows


def scenario(system, engine, strategies, model, length, prefills):
    return "\n".join([
        "name: pools", f"system: {system}", f"engine: {engine}", "any_context: true", f"models: [{model}]",
        f"workload: {{input: {length} tokens, output: 1Ki tokens}}", f"strategies: {strategies}",
        *([f"prefill_strategies: {prefills}"] if prefills else []), "gpus: [8, 16, 32, 64]",
        "batch: [1, 2, 4, 8, 16, 32, 64]", "constraints: {pool_gpus: 64}", ""])


def slim(p, plan, prefill):
    """What of a point the page shows."""
    return {"tpot": p["tpot_s"]["value"], "ttft": p["ttft_s"]["value"], "per_gpu": p["tokens_per_s_gpu"]["value"],
            "low": p["tokens_per_s_gpu"]["low"], "high": p["tokens_per_s_gpu"]["high"], "plan": plan, "prefill": prefill}


def lengths(program):
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "pools.yaml"
        for form, (system, engine, strategies, arms) in FORMS.items():
            for model in MODELS:
                for length, tokens in LENGTHS.items():
                    for arm, prefills in arms.items():
                        file.write_text(scenario(system, engine, strategies, model, tokens, prefills))
                        answer = ask(program, ["sweep", str(file)], may_fail=True)
                        of = answer["models"][0] if answer else {"points": [], "pools": []}
                        together = [slim(p, p["plan"], None) for p in of["points"] if p["on_frontier"]]
                        apart = [slim(p, p["decode_plan"], p["prefill_plan"]) for p in of["pools"] or []]
                        rows.append({"form": form, "model": model, "length": length, "arm": arm, "together": together,
                                     "apart": apart})
                    print(form, model, length, [len(r["apart"]) for r in rows[-len(arms):]], flush=True)
    return rows


# ---- the page


def frontier(points, x, y):
    """Those that none has as much of y as at no more of x, by x."""
    out = []
    for p in sorted(points, key=lambda p: (p[x], -p[y])):
        if not out or p[y] > out[-1][y]:
            out.append(p)
    return out


def number(x):
    return f"{x:,.0f}" if x >= 100 else f"{x:.1f}" if x >= 10 else f"{x:.2f}"


def plan_text(plan):
    """Of a server: it has no batch of its own."""
    return f"`{re.sub(r'[:,]batch=1(?![0-9])', '', plan)}`"


def replicas(p):
    own = f"{p['replicas']} x {plan_text(p['plan'])}"
    return f"{p['prefill_replicas']} x {plan_text(p['prefill'])} + {own}" if p["prefill"] else own


def most_of(rows, gpus, least, ttft_s):
    """Of one pool and of pairs what has most tokens/s/GPU at no less than so many tokens/s/user and no more of TTFT."""
    of = [r for r in rows if r["gpus"] == gpus and 1 / r["tpot"] >= least and r["ttft"] <= ttft_s]
    return [max((r for r in of if r["together"] == together), key=lambda r: r["per_gpu"], default=None) for together in (True, False)]


def gain_of(best):
    return best[1]["per_gpu"] / best[0]["per_gpu"] if all(best) else None


def published_table(rows):
    """Most tokens/s/GPU at no less than so many tokens/s/user, with a limit of TTFT and without."""
    out = [f"| GPUs | tokens/s/user, at least | together: tokens/s/GPU | apart: tokens/s/GPU | apart over together, TTFT {TTFT_S} s at most | "
           "of any TTFT | together | apart |", "|---|---|---|---|---|---|---|---|"]
    for gpus in (8, 16):
        for least in LEAST:
            best = most_of(rows, gpus, least, TTFT_S)
            cell = lambda r: number(r["per_gpu"]) if r else "-"
            gains = [gain_of(best), gain_of(most_of(rows, gpus, least, float("inf")))]
            out.append(f"| {gpus} | {least} | {cell(best[0])} | {cell(best[1])} | " + " | ".join(f"{g:.2f}x" if g else "-" for g in gains) + " | "
                       + " | ".join(replicas(r) + f", {r['users'] * gpus // 8} users, TTFT {r['ttft']:.2f} s" if r else "-" for r in best) + " |")
    return "\n".join(out)


def published_words(rows):
    """The gains of the table above in words."""
    out = []
    for gpus in (8, 16):
        for limit, name in ((TTFT_S, f"with a TTFT of {TTFT_S} s at most"), (float("inf"), "of any TTFT")):
            gains = [(g, least) for least in LEAST if (g := gain_of(most_of(rows, gpus, least, limit)))]
            (low, at_low), (high, at_high) = min(gains), max(gains)
            out.append(f"on {gpus} GPUs {name} apart is {low:.2f} times together at {at_low} tokens/s/user and {high:.2f} times at {at_high}")
    longest = max(most_of(rows, gpus, least, float("inf"))[1]["ttft"] for gpus in (8, 16) for least in LEAST)
    return "So " + "; ".join(out) + f". Without a limit most users of pairs wait for their prompts, as long as {longest:.0f} s."


def traces_table(rows):
    out = ["| load | model | requests/s | TPOT p99, at most | together: GPUs | TPOT p99 (90 %) | goodput/s/GPU | apart: GPUs | TPOT p99 (90 %) | "
           "goodput/s/GPU | fewer GPUs | apart, which |", "|---|---|---|---|---|---|---|---|---|---|---|---|"]
    for load, (_, ttft, rates) in LOADS.items():
        for model, rate in rates.items():
            for target in TPOT_MS:
                of = {r["pools"]: r["best"] for r in rows
                      if (r["load"], r["model"], r["target"]) == (load, model, target)}
                if not any(of.values()):
                    continue
                one, two = of.get("one"), of.get("two")
                ms = lambda b, error: number(b["p99"] * (1 + error) * 1e3)
                cell = lambda b: (f"{b['gpus']} | {ms(b, 0)} ({ms(b, b['low'])} to {ms(b, b['high'])}) ms | {b['per_gpu']:.3f}" if b
                                  else "none | - | -")
                fewer = f"{100 * (1 - two['gpus'] / one['gpus']):.0f} %" if one and two else "only apart" if two else "only together"
                out.append(f"| {load} | {MODELS[model]} | {rate} | {target} ms | {cell(one)} | {cell(two)} | {fewer} | "
                           f"{replicas(two) if two else '-'} |")
    return "\n".join(out)


def at_budget(points, ms):
    of = [p for p in points if p["tpot"] * 1e3 <= ms]
    return max(of, key=lambda p: p["per_gpu"], default=None)


def lengths_table(rows, form, arms, but=""):
    """Most tokens/s/GPU at a TPOT budget. Without lines that are those of the table `but`."""
    head = ["together", *arms]
    out = ["| model | prompt | TPOT, at most | " + " | ".join(f"{h}: tokens/s/GPU (90 %), TTFT" for h in head) + " | most | prompts on |",
           "|---|---|---|" + "---|" * (len(head) + 2)]
    for model in MODELS:
        for length in LENGTHS:
            of = {r["arm"]: r for r in rows if (r["form"], r["model"], r["length"]) == (form, model, length)}
            for ms in (15, 30, 60):
                best = {"together": at_budget(of[arms[0]]["together"], ms)}
                for arm in arms:
                    best[arm] = at_budget(of[arm]["apart"], ms)
                if not any(best.values()):
                    continue
                cell = lambda p: f"{number(p['per_gpu'])} ({number(p['low'])} to {number(p['high'])}), {number(p['ttft'])} s" if p else "-"
                most = max((k for k in best if best[k]), key=lambda k: best[k]["per_gpu"])
                prefill = next((plan_text(best[a]["prefill"]) for a in reversed(arms) if best[a]), "-")
                line = (f"| {MODELS[model]} | {length} | {ms} ms | " + " | ".join(cell(best[h]) for h in head)
                           + f" | {most} | {prefill} |")
                if line not in but.split("\n"):
                    out.append(line)
    return "\n".join(out)


def panel(script, title, lines, nothing, errors):
    """`errors`: xerrorbars or yerrorbars, of points x, y, low, high."""
    names = []
    for i, (name, colour, points) in enumerate(lines):
        if not points:
            continue
        data = f"$d{len(script)}_{i}"
        script.append(data + " << EOD\n" + "\n".join(" ".join(f"{v:.6g}" for v in p) for p in points) + "\nEOD")
        names.append(f"{data} with {errors} lw 1 pt 7 ps 0.7 lc rgb '{colour}' notitle, "
                     f"{data} with lines lw 2 lc rgb '{colour}' notitle")
    script.append(f'set title "{title}"')
    if not names:
        script.append(f"set label 1 '{nothing}' at graph 0.5,0.5 center\nplot [][0:1] NaN notitle\nunset label 1")
    else:
        script.append("plot " + ", ".join(names))


def picture(path, columns, key, axes, errors, panels):
    """Panels of one range of x, and what their colours are in a line above all of them."""
    script = [f'set terminal pngcairo size 1500,1360 font "sans,11"\nset output "{path}"',
              f"set multiplot layout 4,{columns} margins 0.06,0.985,0.05,0.925 spacing 0.07,0.08\nset grid\n{axes}"]
    for i, (name, colour) in enumerate(key):
        script.append(f"set label {10 + i} '● {name}' at screen {0.06 + 0.1 * i:.2f},0.98 tc rgb '{colour}' font 'sans,13'")
    for panel_of in panels:
        panel(script, *panel_of, errors)
        for i in range(len(key)):
            script.append(f"unset label {10 + i}")
    script.append("unset multiplot")
    subprocess.run(["gnuplot"], input="\n".join(script) + "\n", text=True, check=True)


def traces_picture(rows, path):
    panels = []
    for model in MODELS:
        for load, (_, _, rates) in LOADS.items():
            lines = []
            for pools, colour in (("one", GREY), ("two", RED)):
                best = [r["best"] for r in rows if (r["load"], r["model"], r["pools"]) == (load, model, pools) and r["best"]]
                points = frontier([{"x": b["p99"] * 1e3, "y": b["per_gpu"], **b} for b in best], "x", "y")
                lines.append((POOLS[pools], colour,
                              [(p["x"], p["y"], p["x"] * (1 + p["low"]), p["x"] * (1 + p["high"])) for p in points]))
            panels.append((f"{MODELS[model]}, {load}", lines, "nothing on 64 GPUs" if model in rates else "longer than the model reads"))
    picture(path, len(LOADS), [("together", GREY), ("apart", RED)],
            "set logscale x\nset xrange [10:300]\nset xtics (10,20,50,100,200)\nset yrange [0:*]\n"
            "set xlabel 'TPOT p99, ms'\nset ylabel 'goodput, requests/s/GPU'", "xerrorbars", panels)


def lengths_picture(rows, path):
    colours = {"together": GREY, "apart": BLUE, "apart, prompts shared by ranks": RED}
    panels = []
    form = next(iter(FORMS))
    for model in MODELS:
        for length in LENGTHS:
            of = [r for r in rows if (r["form"], r["model"], r["length"]) == (form, model, length)]
            lines = [("together", GREY, of[0]["together"])] + [(r["arm"], colours[r["arm"]], r["apart"]) for r in of]
            lines = [(n, c, [(p["tpot"] * 1e3, p["per_gpu"], p["low"], p["high"]) for p in frontier(points, "tpot", "per_gpu")])
                     for n, c, points in lines]
            panels.append((f"{MODELS[model]}, {length}", lines, "nothing on 64 GPUs"))
    picture(path, len(LENGTHS), list(colours.items()),
            "set logscale xy\nset xrange [8:300]\nset xtics (10,20,50,100,200)\nset xlabel 'TPOT, ms'\nset ylabel 'tokens/s/GPU'",
            "yerrorbars", panels)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--traces", help="folder of mooncake.csv and azure_code.csv")
    parser.add_argument("--only", default="published,traces,lengths", help="which parts to ask anew")
    parser.add_argument("--go-on", action="store_true", help="of traces what is not answered yet")
    parser.add_argument("--render", action="store_true", help="of kept answers, without asking")
    parser.add_argument("--answers", default=str(ROOT / "build"), help="folder in which answers are kept")
    parser.add_argument("-o", "--out", default=str(ROOT / "reports"))
    options = parser.parse_args()
    program, kept, out = str(pathlib.Path(options.program).resolve()), pathlib.Path(options.answers), pathlib.Path(options.out)
    if not options.render:
        for part in options.only.split(","):
            rows = {"published": lambda: published(program), "lengths": lambda: lengths(program),
                    "traces": lambda: traces(program, pathlib.Path(options.traces).resolve(), kept / "pools_traces.json",
                                             options.go_on)}[part]()
            (kept / f"pools_{part}.json").write_text(json.dumps(rows) + "\n")
    rows = {}
    for part in ("published", "traces", "lengths"):
        file = kept / f"pools_{part}.json"
        if not file.exists():
            sys.exit(f"no answers yet of {part}: --only {part}")
        rows[part] = json.loads(file.read_text())
    traces_picture(rows["traces"], out / "gallery" / "pools-traces.png")
    lengths_picture(rows["lengths"], out / "gallery" / "pools-lengths.png")
    text = (ROOT / "reports" / "gallery" / "pools.md.in").read_text()
    sglang, trtllm, helix = FORMS
    for key, value in {"PUBLISHED_WORDS": published_words(rows["published"]), "PUBLISHED": published_table(rows["published"]),
                       "TRACES": traces_table(rows["traces"]),
                       "SGLANG": lengths_table(rows["lengths"], sglang, list(FORMS[sglang][3])),
                       "TRTLLM": lengths_table(rows["lengths"], trtllm, list(FORMS[trtllm][3])),
                       "HELIX": lengths_table(rows["lengths"], helix, list(FORMS[helix][3]),
                                              but=lengths_table(rows["lengths"], trtllm, list(FORMS[trtllm][3])))}.items():
        text = text.replace(f"@{key}@", value)
    (out / "pools.md").write_text(text)


if __name__ == "__main__":
    main()
