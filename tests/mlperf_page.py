#!/usr/bin/env python3
"""reports/gallery/mlperf.py without the measured runs, which are not part of the project: its laws of lengths are those of
the data sets, its requests are sent as LoadGen sends them, and two made-up submissions become a whole page. The page in
the repository is its frame, filled. Usage: mlperf_page.py SHARDLINE ROOT"""
import csv
import math
import pathlib
import random
import re
import shutil
import sys
import tempfile

SHARDLINE, ROOT = sys.argv[1], pathlib.Path(sys.argv[2])
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "reports" / "gallery"))
import mlperf  # noqa: E402
import mlperf_runs  # noqa: E402

COLUMNS = ("submitter,system,benchmark,scenario,valid,target_qps,completed_samples_per_s,tok_per_s,ttft_mean_ms,ttft_p50_ms,ttft_p99_ms,"
           "tpot_p50_ms,tpot_p99_ms,accelerator,accelerators")
# Made up: one of each engine, and three that the page leaves out.
MADE_UP = """RedHat,XE8640_4xH100_vLLM,llama3.1-8b,Server,VALID,20,20,2580,80,70,200,10,20,NVIDIA H100-SXM-80GB,1x1
Nebius,H200-SXM-141GBx8_TRT,llama2-70b-99,Interactive,VALID,10,10,2927,80,70,200,30,35,NVIDIA H200-SXM-141GB,2x1
Nebius,H200-SXM-141GBx8_TRT,llama2-70b-99.9,Interactive,VALID,10,10,2927,80,70,200,30,35,NVIDIA H200-SXM-141GB,2x1
Dell,XE7745_H200_NVL_141GBx8_TRT,llama2-70b-99,Interactive,VALID,10,10,2927,80,70,200,30,35,NVIDIA H200-NVL-141GB,2x1
Dell_Broadcom,vXE9680_H200,llama2-70b-99,Server,VALID,10,10,2927,80,70,200,30,35,Virtualized NVIDIA H200-SXM-141GB,2x1"""


def check(true, what):
    if not true:
        sys.exit(what)


def laws():
    # Sums of tokens over samples as published: HBFSim's protocol and MLCommons' README of Mixtral, the page's sources.
    for bench, what, goal in (("llama2-70b", "input", 5463976 / 24576), ("llama2-70b", "output", 292.7), ("llama3.1-8b", "input", 11639915 / 13368),
                              ("mixtral-8x7b", "input", 6410905 / 15000), ("mixtral-8x7b", "output", 144.84)):
        law = mlperf_runs.quantiles(bench, what)
        check(law[0][0] == 0 and law[-1][0] == 1 and all(a[0] < b[0] and a[1] <= b[1] for a, b in zip(law, law[1:])), f"{bench} {what}: no law")
        check(abs(mlperf_runs.mean(law) / goal - 1) < .01, f"{bench} {what}: {mlperf_runs.mean(law)} tokens, not {goal}")
        check(law[-1][1] <= mlperf_runs.LONGEST[bench][what == "output"], f"{bench} {what}: longer than the benchmark's")
        random.seed(1)
        drawn = sum(mlperf_runs.at(law, random.random()) for _ in range(40000)) / 40000
        check(abs(drawn / mlperf_runs.mean(law) - 1) < .02, f"{bench} {what}: drawn {drawn}")
        for scale, spread in ((.8, None), (1.2, None), (1, .5), (1, 1.)):
            other = mlperf_runs.changed(law, scale, spread, 4096)
            check(abs(mlperf_runs.mean(other) / mlperf_runs.mean(law) / scale - 1) < 1e-3, f"{bench} {what}: mean of {scale}, {spread}")
    # A lognormal has its median where the mean says.
    wide = mlperf_runs.changed([(0, 100), (1, 100)], 1, .5, 10 ** 6)
    check(abs(mlperf_runs.at(wide, .5) / (100 * math.exp(-.125)) - 1) < .01, "median of a lognormal")


def requests(folder):
    path = folder / "requests.csv"
    mlperf_runs.SAMPLES["mixtral-8x7b"] = 500
    player = mlperf_runs.Player(None, {"bench": "mixtral-8x7b"}, 1, 2.1)
    mlperf_runs.write_trace(path, "mixtral-8x7b", player.laws, player.passes)
    with open(path, newline="", encoding="utf-8") as file:
        rows = [(float(r["arrival_s"]), int(r["input_tokens"]), int(r["output_tokens"])) for r in csv.DictReader(file)]
    check(len(rows) == 1500, "whole passes over the data set, for 600 s at least")
    passes = [rows[i:i + 500] for i in range(0, 1500, 500)]
    for of in (1, 2):
        check(len({tuple(sorted(r[of] for r in p)) for p in passes}) == 1, "each pass has every sample")
        check(len({tuple(r[of] for r in p) for p in passes}) == 3, "each in another order")
    gaps = [b[0] - a[0] for a, b in zip(rows, rows[1:])]
    mean = sum(gaps) / len(gaps)
    check(abs(mean - 1) < .1 and abs(sum(g * g for g in gaps) / len(gaps) / mean ** 2 - 2) < .3, "exponential times, one a second on average")


def offline():
    # Each system's own run, a run at another accuracy where there is one, and none where none is known.
    for submitter, system, bench, accuracy, goal in (
            ("ASUSTeK", "ESC_N8_H200-SXM-141GBx8_TRT", "llama2-70b", "99.9 %", 119.591), ("ASUSTeK", "ESC_N8_H200-SXM-141GBx8_TRT", "llama2-70b", "", 120.235),
            ("Cisco", "C885A_M8_H200_SXM_141GBx16_TRT", "llama2-70b", "", 235.675), ("Cisco", "C885_H200x8_TRT", "llama2-70b", "", 118.429),
            ("Dell", "XE9680_H200_SXM_141GBx8_TRT", "llama2-70b", "", 120.831), ("Dell", "XE9680L_H200_SXM_141GBx8_TRT", "llama2-70b", "", 118.567),
            ("Google", "H200-SXM-141GBx8_TRT", "llama2-70b", "", 119.442), ("Nebius", "H200-SXM-141GBx8_TRT", "llama2-70b", "99.9 %", 118.653),
            ("HPE", "HPE_Cray_XD670_H200_SXM_141GBx8_TRT", "llama3.1-8b", "", 515.912), ("RedHat", "XE8640_4xH100_vLLM", "llama3.1-8b", "", None)):
        found = mlperf_runs.offline_of({"submitter": submitter, "system": system, "bench": bench, "accuracy": accuracy})
        check(found == goal, f"Offline of {submitter}, {system}, {bench} {accuracy}: {found}, not {goal}")


def steps():
    # Requests of 222.3 + 292.7 tokens on average, 10 of them a second on two GPUs, a token each 20 ms.
    tokens = mlperf.tokens_of_step(10, 2, "llama2-70b", .02)
    check(abs(tokens - 5 * (5463976 / 24576 + 292.7) * .02) < .5, f"Little's law: {tokens} tokens a step")
    line = [(100, .03), (50, .02), (200, .07)]
    check(abs(mlperf.step_at(line, 75) - .025) < 1e-12 and abs(mlperf.step_at(line, 150) - .05) < 1e-12, "straight lines between played steps")
    check(mlperf.step_at(line, 49) is None and mlperf.step_at(line, 201) is None and mlperf.step_at([], 1) is None, "nothing beyond them")


def page(folder):
    for bench in mlperf_runs.SAMPLES:
        mlperf_runs.SAMPLES[bench] = 300
    mlperf_runs.MIN_DURATION_S = 10
    mlperf_runs.VARIANTS[3:] = []
    mlperf_runs.Player.largest.__defaults__ = (.5,)  # brackets this wide are enough here
    if shutil.which("gnuplot") is None:
        mlperf.picture = lambda *_: None
    (folder / mlperf_runs.MEASURED).write_text(COLUMNS + "\n" + MADE_UP + "\n")
    arguments = [SHARDLINE, str(folder), "--answers", str(folder / "answers.json"), "-o", str(folder)]
    mlperf.main(arguments)
    text = (folder / "mlperf.md").read_text()
    check(not re.search(r"@[A-Z_]+@", text), "a key of the frame is not filled")
    check("2 of 5 rows" in text and "1 NVL cards, 1 virtual machines" in text.replace("1 submitted twice, ", ""), "rows left out are counted")
    for name in ("Red", "Nebius, H200-SXM-141GBx8", "Llama-3.1-8B, server", "Llama-2-70B, interactive", "prompts 20 % shorter"):
        check(name in text, f"{name} is missing")
    check(len(re.findall(r" \(\d+\.\d\d\)", text)) >= 16, "four ratios a row")
    # Kept answers are not asked again: without the program the same page.
    mlperf.main(["", *arguments[1:], "--render"])
    check((folder / "mlperf.md").read_text() == text, "--render makes another page")
    try:
        (folder / mlperf_runs.MEASURED).write_text(COLUMNS + "\n" + MADE_UP.splitlines()[0].replace("Server", "Offline") + "\n")
        mlperf.main(arguments)
    except SystemExit as error:
        check("no start options" in str(error), f"unknown options: {error}")
    else:
        sys.exit("a run without start options is played")


def repository():
    frame, text = (ROOT / "reports" / "gallery" / "mlperf.md.in").read_text(), (ROOT / "reports" / "mlperf.md").read_text()
    parts = re.split(r"@[A-Z_]+@", frame)
    at = 0
    for part in parts:
        found = text.find(part, at)
        check(found >= at and (at > 0 or found == 0), f"reports/mlperf.md is not mlperf.md.in, filled: {part.strip()[:80]!r}")
        at = found + len(part)
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        check((ROOT / "reports" / link).exists(), f"reports/mlperf.md: {link} is not there")
    # Spoilt, it is found.
    check(parts[0] not in text.replace("MLPerf", "Mlperf", 1), "self-test: a changed title is not found")


with tempfile.TemporaryDirectory() as made:
    repository()
    laws()
    requests(pathlib.Path(made))
    offline()
    steps()
    page(pathlib.Path(made))
print("laws, requests, Offline, steps, page")
