#!/usr/bin/env python3
"""Does sharding the cache still pay at a million tokens? Asks the program, and writes reports/sharding.md and
its pictures in reports/gallery.

    reports/gallery/sharding.py build/ci/bin/shardline [--models NAME,...]

Every number on the page is one of `shardline sweep --json` or `shardline simulate --json` for the scenarios
sharding_h200 and sharding_gb200, of which --set changes what differs from model to model: the tables below. Needs gnuplot."""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONTEXTS = {"64K": "65536 tokens", "256K": "262144 tokens", "1M": "1000000 tokens"}
SYSTEMS = {"h200": "8 to 64 H200", "gb200": "8 to 64 GPUs of a GB200 NVL72"}
BASE, SHARED = ["tensor", "pipeline", "dp_ep"], ["dcp", "helix", "kv_shard"]

BF16 = "activations: bf16, dispatch: bf16"
SHARED16 = "shared_weights: bf16, shared_math: bf16, "  # the checkpoint leaves these experts as they were
FP8 = "{weights: fp8_block, kv: fp8, math: fp8, activations: bf16, dispatch: fp8}"
NVFP4 = "{weights: %s, kv: %s, math: %s, ffn_weights: fp4, ffn_math: fp4, activations: bf16, dispatch: bf16}"
# Title, what TP cannot share out of a layer's cache, kernels, and types on either system. Kernels are SGLang's
# where its tables alone reach a million tokens (sparse attention), else TensorRT-LLM's. Types are those of the
# makers' checkpoints; on Blackwell experts in NVFP4 where no maker's checkpoint has a four-bit type of its own. A cache
# has one type on both: kernels of latent attention are measured with BF16 and FP8 on either, so that the system is no
# reason to differ.
MODELS = {
    "deepseek-r1": ("DeepSeek-R1", "latents (MLA)", "trtllm", FP8, NVFP4 % ("bf16", "fp8", "bf16")),
    "deepseek-v3.2": ("DeepSeek-V3.2", "index of 61 layers", "sglang", FP8, NVFP4 % ("bf16", "fp8", "bf16")),
    "deepseek-v4-pro": (
        "DeepSeek-V4-Pro", "index of 30 layers, over rows of 4 tokens", "sglang",
        "{weights: fp8_block, kv: fp8, math: fp8, expert_weights: mxfp4, expert_math: bf16, "
        "shared_weights: fp8_block, shared_math: fp8, activations: bf16, dispatch: fp8}",
        "{weights: fp8_block, kv: fp8, math: fp8, expert_weights: mxfp4, expert_math: fp8, "
        "shared_weights: fp8_block, shared_math: fp8, activations: bf16, dispatch: fp8}"),
    "glm-5.2": ("GLM-5.2", "index of 21 layers of 78", "sglang", FP8, NVFP4 % ("bf16", "fp8", "bf16")),
    "kimi-k3": (
        "Kimi-K3", "latents of 24 layers; 69 have states", "trtllm",
        "{weights: bf16, kv: bf16, math: bf16, expert_weights: mxfp4, expert_math: bf16, " + SHARED16 + BF16 + "}",
        "{weights: bf16, kv: bf16, math: bf16, expert_weights: mxfp4, expert_math: fp8, " + SHARED16 + BF16 + "}"),
    "minimax-m3": (
        "MiniMax-M3", "index of 57 layers, beyond 4 KV heads all", "sglang",
        "{weights: bf16, kv: bf16, math: bf16, " + BF16 + "}", NVFP4 % ("bf16", "bf16", "bf16")),
    "qwen3.5-397b-a17b": (
        "Qwen3.5-397B", "2 KV heads of 15 layers; 45 have states", "trtllm",
        "{weights: bf16, kv: bf16, math: bf16, " + BF16 + "}", NVFP4 % ("bf16", "bf16", "bf16")),
    "gpt-oss-120b": (
        "gpt-oss-120b", "nothing to 8 ranks; 18 layers see 128 tokens", "trtllm",
        "{weights: bf16, kv: bf16, math: bf16, expert_weights: mxfp4, expert_math: bf16, " + BF16 + "}",
        "{weights: bf16, kv: bf16, math: bf16, expert_weights: mxfp4, expert_math: fp8, " + BF16 + "}"),
}
for _title, *_, _h200, _gb200 in MODELS.values():
    assert len({types.split("kv: ")[1].split(",")[0] for types in (_h200, _gb200)}) == 1, f"{_title}: one type of cache"
# What op kinds of a step are of, in the order of the page.
WHAT = {
    "cache": {"attend_decode", "attend_sparse"},
    "indexer": {"index_logits", "top_k"},
    "states": {"convolve", "recur"},
    "weights": {"gemm", "batched_gemm", "grouped_gemm"},
    "messages": {"send_recv", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "dispatch", "combine"},
    "small kernels": {"merge", "elementwise", "compress", "module_rest", "mix_streams", "launch"},
}


ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}
HOSTED = ("64K", "1M")  # lengths whose plans are asked for an engine's host


def hosted(program, system, model, context, plan):
    """What part of the same plan's step waits for the host of each engine that starts the model and has a price; else nothing."""
    _, _, _, h200, gb200 = MODELS[model]
    lines = (ROOT / "scenarios" / f"sharding_{system}.yaml").read_text().splitlines()
    own = ("kernels:", "kv_block:", "options:", "compare:")  # an engine has kernels and blocks of its own
    shares = {}
    with tempfile.TemporaryDirectory() as folder:
        scenario = pathlib.Path(folder) / "hosted.yaml"
        scenario.write_text("\n".join(line for line in lines if not line.startswith(own)) + "\n")
        for engine in ENGINES:
            out = subprocess.run(
                [program, "simulate", str(scenario), "--json", "--engine", engine, "--any-gpus", "--plan", plan,
                 "--set", "strategies=[tensor, pipeline, dp_ep]", "--set", f"models=[{model}]", "--set",
                 f"context={CONTEXTS[context]}", "--set", f"precision={h200 if system == 'h200' else gb200}"],
                capture_output=True, text=True)
            if out.returncode in (0, 3) and out.stdout:
                parts = json.loads(out.stdout)["breakdown"]["parts"]
                shares[engine] = sum(p["share"] for p in parts if p["name"] == "host")
            elif not any(words in out.stderr for words in ("does not start", "of which prices here have no form")):
                sys.exit(out.stderr)
    print(system, model, context, plan, "host", shares, flush=True)
    return shares


def ask(program, command, system, model, context, *more, framework=None):
    _, _, own, h200, gb200 = MODELS[model]
    framework = framework or own
    run = [program, command, f"sharding_{system}", "--json", "--set", f"models=[{model}]", "--set",
           f"context={CONTEXTS[context]}", "--set", f"precision={h200 if system == 'h200' else gb200}", "--set",
           f"kernels.framework={framework}", "--set",
           f"compare={{candidate: [{', '.join(SHARED)}], baseline: [{', '.join(BASE)}]}}", *more]
    out = subprocess.run(run, cwd=ROOT, capture_output=True, text=True)
    if out.returncode not in (0, 3) or not out.stdout:
        sys.exit(f"{' '.join(run)}\n{out.stderr}")
    return json.loads(out.stdout)


def fastest(points, strategies):
    of = [p for p in points if p["strategy"] in strategies]
    return max(of, key=lambda p: p["tokens_per_s_user"]["value"], default=None)


def bound(program, system, model, context, point, framework):
    """What the step of a plan is made of, largest first, as far as a tenth of it."""
    kinds = ask(program, "simulate", system, model, context, "--plan", point["plan"],
                framework=framework)["breakdown"]["kinds"]
    sums = {name: sum(k["share"] for k in kinds if k["name"] in of) for name, of in WHAT.items()}
    named = set().union(*WHAT.values())
    unknown = [k["name"] for k in kinds if k["name"] not in named]
    if unknown:
        sys.exit(f"no word for ops of kind {', '.join(unknown)}")
    return ", ".join(f"{name} {share:.0%}" for name, share in sorted(sums.items(), key=lambda s: -s[1]) if share >= 0.1)


def per_gpu(points, strategies, least_user):
    """Most tokens/s/GPU of those with at least so many tokens/s/user."""
    of = [p["tokens_per_s_gpu"]["value"] for p in points
          if p["strategy"] in strategies and p["tokens_per_s_user"]["value"] >= least_user]
    return max(of, default=0)


def number(x):
    return f"{x:,.0f}" if x >= 100 else f"{x:.1f}"


def with_band(v):
    return f"{number(v['value'])} ({number(v['low'])} to {number(v['high'])})"


def slim(p):
    """What of a point the page shows."""
    return {k: p[k] for k in ("plan", "strategy", "tokens_per_s_user", "tokens_per_s_gpu", "shares")}


def question(program, system, model, context, framework=None):
    answer = ask(program, "sweep", system, model, context, framework=framework)["models"][0]
    points = answer["points"]
    points = [slim(p) for p in points]
    base, shared = fastest(points, BASE), fastest(points, SHARED)
    row = {"points": points, "base": base, "shared": shared, "gain": None}
    for side in ("base", "shared"):
        row[side + "_bound"] = bound(program, system, model, context, row[side], framework) if row[side] else ""
    if base and shared:
        row["gain"] = answer["gain"]["interactivity"]
        at = base["tokens_per_s_user"]["value"] / 2  # at twice the least time per token that needs no sharing
        row["throughput"] = per_gpu(points, SHARED, at) / per_gpu(points, BASE, at)
    print(system, model, context, framework or "", "base", base and base["plan"], "shared", shared and shared["plan"], row["gain"], flush=True)
    return row


def gain_text(row):
    if row["base"] is None:
        return "alone fits" if row["shared"] else "nothing fits"
    if row["shared"] is None:
        return "no plan"
    g = row["gain"]
    # On which side of 1 a bound is decides the answer: never rounded to it.
    bound = lambda x: f"{x:.2f}" if abs(x - 1) >= 0.005 else f"{x:.3f}"
    return f"{g['value']:.2f}x ({bound(g['low'])} to {bound(g['high'])})"


def answer_words(row):
    """By the interval, whose whole must be on one side of 1."""
    g = row["gain"]
    if g is None:
        return gain_text(row)
    return "pays" if g["low"] > 1 else "does not" if g["high"] < 1 else "even"


def table(rows, models, system):
    out = ["| model | context | without: tokens/s/user (90 %) | bounded by | shared: tokens/s/user (90 %) | bounded by "
           "| gain of the fastest (90 %) | tokens/s/GPU at half the speed | extrapolated |", "|---|---|---|---|---|---|---|---|---|"]
    for model in models:
        for context in CONTEXTS:
            r = rows[system, model, context]
            cell = lambda p: with_band(p["tokens_per_s_user"]) if p else "-"
            far = " / ".join(f"{p['shares']['extrapolated'] + p['shares']['assumed']:.0%}" if p else "-"
                             for p in (r["base"], r["shared"]))
            through = f"{r['throughput']:.2f}x" if r["gain"] else "-"
            out.append(f"| {MODELS[model][0]} | {context} | {cell(r['base'])} | {r['base_bound']} | {cell(r['shared'])} "
                       f"| {r['shared_bound']} | {gain_text(r)} | {through} | {far} |")
    return "\n".join(out)


def plans(rows, models, system):
    out = ["| model | without | shared |", "|---|---|---|"]
    for model in models:
        r = rows[system, model, "1M"]
        text = lambda p: f"`{p['plan']}`" if p else "-"
        out.append(f"| {MODELS[model][0]} | {text(r['base'])} | {text(r['shared'])} |")
    return "\n".join(out)


def picture(rows, models, system, path):
    """One panel a model at 1M tokens: each strategy's own frontier, both axes logarithmic."""
    colours = {"tensor": "#555555", "pipeline": "#aaaaaa", "dp_ep": "#1f77b4",  # with the cache whole
               "dcp": "#2ca02c", "helix": "#d62728", "kv_shard": "#ff9f1c"}  # shared by sequence
    assert set(colours) == {*BASE, *SHARED}
    script = [f'set terminal pngcairo size 1500,1360 font "sans,11"\nset output "{path}"',
              "set multiplot layout 3,3 margins 0.06,0.98,0.05,0.95 spacing 0.06,0.07",
              "set logscale xy\nset grid\nset key bottom left\nset xlabel 'tokens/s/user'\nset ylabel 'tokens/s/GPU'"]
    for i, model in enumerate(models):
        points, lines = rows[system, model, "1M"]["points"], []
        for strategy, colour in colours.items():
            of = sorted((p["tokens_per_s_user"]["value"], p["tokens_per_s_gpu"]["value"]) for p in points
                        if p["strategy"] == strategy)
            if not of:
                continue
            name = f"$d{i}_{strategy}"
            script.append(name + " << EOD\n" + "\n".join(f"{x:.6g} {y:.6g}" for x, y in of) + "\nEOD")
            lines.append(f"{name} with linespoints lw 2 pt 7 ps 0.5 lc rgb '{colour}' title '{strategy.replace('_', ' ')}'")
        script.append(f'set title "{MODELS[model][0]}"')
        script.append("plot " + ", ".join(lines))
    script.append("unset multiplot")
    subprocess.run(["gnuplot"], input="\n".join(script) + "\n", text=True, check=True)


def frameworks(rows, model):
    """One model at 1M tokens by kernels of two frameworks."""
    out = ["| system | kernels | without: tokens/s/user (90 %) | shared: tokens/s/user (90 %) | gain of the fastest (90 %) | extrapolated |",
           "|---|---|---|---|---|---|"]
    for s in SYSTEMS:
        for framework in ("sglang", "vllm"):
            r = rows.get((s, model, framework))
            if r is None:
                continue
            cell = lambda p: with_band(p["tokens_per_s_user"]) if p else "-"
            far = " / ".join(f"{p['shares']['extrapolated'] + p['shares']['assumed']:.0%}" if p else "-"
                             for p in (r["base"], r["shared"]))
            out.append(f"| {SYSTEMS[s]} | {framework} | {cell(r['base'])} | {cell(r['shared'])} | {gain_text(r)} | {far} |")
    return "\n".join(out)


def hosts(rows, models):
    out = ["| model | " + " | ".join(f"{SYSTEMS[s]}: {c}" for s in SYSTEMS for c in HOSTED) + " |",
           "|---|" + "---|" * (len(SYSTEMS) * len(HOSTED))]
    for model in models:
        cells = []
        for s in SYSTEMS:
            for c in HOSTED:
                shares = rows[s, model, f"host at {c}"]
                cells.append(", ".join(f"{ENGINES[e]} {share:.0%}" for e, share in shares.items()) or "no engine starts it in these types")
        out.append(f"| {MODELS[model][0]} | " + " | ".join(cells) + " |")
    return "\n".join(out)


def summary(rows, models):
    out = ["| model | what TP does not share out | " + " | ".join(f"{SYSTEMS[s]}: {c}" for s in SYSTEMS for c in CONTEXTS) + " |",
           "|---|---|" + "---|" * (len(SYSTEMS) * len(CONTEXTS))]
    for model in models:
        cells = [f"{answer_words(rows[s, model, c])}: {gain_text(rows[s, model, c])}" if rows[s, model, c]["gain"]
                 else gain_text(rows[s, model, c]) for s in SYSTEMS for c in CONTEXTS]
        out.append(f"| {MODELS[model][0]} | {MODELS[model][1]} | " + " | ".join(cells) + " |")
    return "\n".join(out)


def reading(rows, models):
    """The answers in words, by system and length."""
    out = []
    for s in SYSTEMS:
        for c in CONTEXTS:
            of = {}
            for m in models:
                of.setdefault(answer_words(rows[s, m, c]), []).append(MODELS[m][0])
            words = {"pays": "it pays for", "even": "it cannot be told for", "does not": "it does not for"}
            told = [f"{words.get(w, w + ':')} {', '.join(of[w])}" for w in ("pays", "even", "does not") if w in of]
            told += [f"{w}: {', '.join(names)}" for w, names in of.items() if w not in words]
            out.append(f"- {SYSTEMS[s]}, {c}: {'; '.join(told)}.")
    return "\n".join(out)


def keep(file, rows):
    file.write_text(json.dumps([[*key, row] for key, row in rows.items()], indent=0) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--render", action="store_true", help="of kept answers, without asking")
    parser.add_argument("--hosts", action="store_true", help="asks for engines' hosts alone, beside kept answers")
    parser.add_argument("--answers", default=str(ROOT / "build" / "sharding.json"), help="where answers are kept")
    parser.add_argument("-o", "--out", default=str(ROOT / "reports"))
    options = parser.parse_args()
    models, out = options.models.split(","), pathlib.Path(options.out)
    program = str(pathlib.Path(options.program).resolve())
    (out / "gallery").mkdir(parents=True, exist_ok=True)
    kept = pathlib.Path(options.answers)
    if options.hosts:
        rows = {tuple(r[:3]): r[3] for r in json.loads(kept.read_text())}
    elif not options.render:
        rows = {(s, m, c): question(program, s, m, c) for s in SYSTEMS for m in models for c in CONTEXTS}
        if "minimax-m3" in models:
            rows |= {(s, "minimax-m3", f): question(program, s, "minimax-m3", "1M", f)
                     for s in SYSTEMS for f in ("sglang", "vllm")}
        keep(kept, rows)
    if not options.render:
        rows |= {(s, m, f"host at {c}"): hosted(program, s, m, c, rows[s, m, c]["base"]["plan"])
                 for s in SYSTEMS for m in models for c in HOSTED}
        keep(kept, rows)
    rows = {tuple(r[:3]): r[3] for r in json.loads(kept.read_text())}
    for s in SYSTEMS:
        picture(rows, models, s, out / "gallery" / f"sharding-{s}.png")
    text = (ROOT / "reports" / "gallery" / "sharding.md.in").read_text()
    for key, value in {"READING": reading(rows, models), "SUMMARY": summary(rows, models), "H200": table(rows, models, "h200"),
                       "GB200": table(rows, models, "gb200"), "PLANS_H200": plans(rows, models, "h200"),
                       "PLANS_GB200": plans(rows, models, "gb200"),
                       "HOSTS": hosts(rows, models),
                       "FRAMEWORKS": frameworks(rows, "minimax-m3"),
                       "TYPES": "\n".join(f"| {t} | {f} | `{h}` | `{g}` |" for t, _, f, h, g in
                                          (MODELS[m] for m in models))}.items():
        text = text.replace(f"@{key}@", value)
    (out / "sharding.md").write_text(text)


if __name__ == "__main__":
    main()
