"""trace.json of simulate, read as a viewer does: every rank of the group has a track and slices that do not overlap, the
critical path is a lane of its own without gaps that ends with the last slice, and arrows have both of their ends inside of
slices, some of them on two ranks. Usage: traces.py BINARY"""
import collections
import json
import os
import subprocess
import sys
import tempfile

BINARY = os.path.abspath(sys.argv[1])
# Scenario, model, plan; names of tracks beside the critical path. Equal ranks; ranks of classes of several; ranks that all
# differ; beside the traffic of others; chunks through stages.
RANKS = [f"rank {r}" for r in range(64)]
PLANS = [
    ("helix_gb200_1m", "llama-3.1-405b", "helix:kvp=8,tpa=8,tpf=64,batch=4", RANKS[:1] + [f"{r} (as rank 0)" for r in RANKS[1:]]),
    ("prefill_llama8b_128k", "", "kv_runahead:cp=4,tpa=2,tpf=2,batch=1",
     [f"rank {r}" + (f" (as rank {r - 1})" if r % 2 else "") for r in range(8)]),
    ("kvr_llama7b_a100", "", "kv_runahead:cp=4", RANKS[:4]),
    ("kvr_noise_llama7b_a100", "", "kv_runahead:cp=4", RANKS[:4]),
    ("prefill_llama7b_a100", "", "pipeline:pp=4,prefill_chunk=2048", [f"stage {s}" for s in range(4)]),
    ("prefill_llama8b_128k", "", "pipeline:pp=2,tpa=2,tpf=2,prefill_chunk=32768",
     [f"stage {s}, 2 equal ranks" for s in range(2)]),
    # 25,000 slices if every rank had a track.
    ("prefill_llama8b_1m", "", "ring_pass_kv:cp=128", ["one of 128 equal ranks, one run of each block"]),
]
MOST_SLICES = 20_000
NANOSECOND = 1e-3  # times are in microseconds, kept to whole nanoseconds


def require(holds, text):
    if not holds:
        print("FAILED:", text)
        sys.exit(1)


def lanes_of(events):
    lanes = collections.defaultdict(list)
    for e in events:
        if e["ph"] != "X":
            continue
        require(e["ts"] >= 0 and e["dur"] >= 0 and e["name"], f"a slice without time or name: {e}")
        lanes[e["pid"], e["tid"]].append(e)
    for where, lane in lanes.items():
        lane.sort(key=lambda e: e["ts"])
        for a, b in zip(lane, lane[1:]):
            require(a["ts"] + a["dur"] < b["ts"] + NANOSECOND / 2, f"slices overlap on {where}: {a['name']}, {b['name']}")
    return lanes


def check_path(path, lanes):
    at = 0
    for e in path:
        require(abs(e["ts"] - at) < NANOSECOND / 2, f"the critical path has a gap before {e['name']}: {at}, {e['ts']}")
        at = e["ts"] + e["dur"]
    last = max(e["ts"] + e["dur"] for lane in lanes.values() for e in lane)
    require(abs(at - last) < NANOSECOND / 2, f"the critical path ends at {at}, the last slice at {last}")
    require(abs(sum(e["dur"] for e in path) / last - 1) < 1e-6, "durations of the critical path are not the makespan")


def check_arrows(events, lanes, path):
    """Returns how many arrows go from one rank to another."""
    ends = {kind: {e["id"]: e for e in events if e["ph"] == kind} for kind in "sf"}
    drawn = [e for e in events if e["ph"] in "sf"]
    require(len(drawn) == 2 * len(ends["s"]) and set(ends["s"]) == set(ends["f"]), "arrows with one end, or an id used twice")
    across = 0
    for i, begin in ends["s"].items():
        end = ends["f"][i]
        require(end["bp"] == "e" and begin["ts"] <= end["ts"], f"arrow {i} goes back in time")
        for e in (begin, end):
            inside = [s for s in lanes[e["pid"], e["tid"]] if s["ts"] <= e["ts"] < s["ts"] + s["dur"]]
            require(len(inside) == 1 and e["pid"] != path, f"an end of arrow {i} lies in {len(inside)} slices")
        across += begin["pid"] != end["pid"]
    return across


def check(scenario, model, plan, tracks):
    command = [BINARY, "simulate", scenario, "--plan", plan, "-o", "out"] + (["--model", model] if model else [])
    ran = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    require(ran.returncode == 0, f"exit {ran.returncode} of {command}: {ran.stderr}")
    with open("out/trace.json") as file:
        events = json.load(file)["traceEvents"]
    left_out = f"all {tracks[0].split()[2]} ranks would be more than {MOST_SLICES} slices" if "one of" in tracks[0] else ""
    require(left_out in ran.stdout and ("one rank for each class" in ran.stdout) == bool(left_out), f"says of what is left out: {ran.stdout}")
    require({e["ph"] for e in events} == set("MXsf"), "other kinds of events than names, slices and arrows")
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name" and e["ph"] == "M"}
    require(sorted(names.values()) == sorted(tracks + ["critical path"]), f"tracks are {sorted(names.values())}")
    path = next(p for p, name in names.items() if name == "critical path")
    top = [e["pid"] for e in events if e["name"] == "process_sort_index" and e["args"]["sort_index"] < 0]
    require(top == [path], "the critical path is not above the ranks")
    lanes = lanes_of(events)
    require({p for p, _ in lanes} == set(names), "a track without slices, or slices without a track")
    require([t for p, t in lanes if p == path] == [0], "the critical path is not one lane")
    check_path(lanes[path, 0], lanes)
    slices = sum(len(lane) for (p, _), lane in lanes.items() if p != path)
    require(slices <= MOST_SLICES, f"{slices} slices beside the critical path")
    across = check_arrows(events, lanes, path)
    require(across >= len(tracks) - 1, f"{across} arrows between {len(tracks)} tracks")
    print(f"{plan}: {len(tracks)} tracks, {sum(map(len, lanes.values()))} slices, {across} arrows between tracks")


def check_chunks(plan, tokens, ran_in):
    """Slices of chunks, one after the other, have all of a prompt's tokens."""
    subprocess.run([BINARY, "simulate", *plan, "-o", ran_in], check=True, capture_output=True)
    with open(os.path.join(ran_in, "trace.json"), encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    first = [e for e in events if e["ph"] == "X" and e["name"].startswith("chunk ") and e["pid"] == 0 and e["cat"] == "layers"]
    before = 0
    for chunk in sorted(first, key=lambda e: e["ts"]):
        require(int(chunk["args"]["tokens before them"]) == before, f"{chunk['name']} does not begin at {before}")
        before += int(chunk["args"]["new tokens"])
    require(before == tokens and len(first) > 1, f"{len(first)} chunks have {before} of {tokens} tokens")


def check_requests():
    """serve: steps of each replica and every request, in lanes without overlaps."""
    ran = subprocess.run([BINARY, "serve", "llama-3.1-8b", "--system", "h100-hgx", "--gpus", "2", "--input", "1K", "--output", "32",
                          "--plan", "tensor:tpa=2,tpf=2", "--rate", "60/s", "--requests", "400", "--replicas", "2", "-o", "served"],
                         capture_output=True, text=True, stdin=subprocess.DEVNULL)
    require(ran.returncode == 0, f"exit {ran.returncode} of serve: {ran.stderr}")
    with open("served/trace.json", encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name" and e["ph"] == "M"}
    require(sorted(names.values()) == ["replica 0", "replica 1"], f"tracks are {names}")
    lanes = lanes_of(events)
    answers = [e for lane in lanes.values() for e in lane if e["name"].endswith(": answer")]
    first = [e for lane in lanes.values() for e in lane if e["name"].endswith(": TTFT")]
    require(len(answers) == len(first) == 400, f"{len(first)} requests begin, {len(answers)} are answered, of 400")
    steps = [e for pid in names for e in lanes[pid, 0]]
    prompts = sum(int(e["args"]["tokens of prompts"]) for e in steps)
    require(prompts == 400 * 1024, f"steps have {prompts} tokens of prompts")
    tokens = sum(int(e["args"]["steps"]) * int(e["args"]["requests that decode"]) for e in steps)
    require(tokens == 400 * 31, f"steps have {tokens} tokens of answers beside the first of each")
    print(f"serve: {len(steps)} steps and stretches, {len(first)} requests")


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for plan in PLANS:
            check(*plan)
        check_requests()
        check_chunks(["prefill_llama7b_a100", "--plan", "pipeline:pp=4,prefill_chunk=3000"], 16384, "chunks")


if __name__ == "__main__":
    main()
