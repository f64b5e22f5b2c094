"""Every number of a question that makes it larger has a limit. At the limit it ends, with an answer, no plan or a
refusal of what it needs; one beyond is refused at the key. The table is in scenarios/README.md, "Limits".
Usage: limits.py BINARY"""
import os
import subprocess
import sys
import tempfile

BINARY = os.path.abspath(sys.argv[1])
SECONDS = 60  # that a question at its limit may take

DECODE = """name: decode
system: {system}
models: [llama-3.1-8b]
phase: decode
context: {context}
strategies: [{strategy}]
gpus: {gpus}
batch: {batch}
{more}"""
PREFILL = """name: prefill
system: h200-hgx
models: [llama-3.1-8b]
phase: prefill
any_context: true
requests: {requests}
strategies: [{strategy}]
gpus: [8]
batch: 1
{more}"""
MIXED = """name: mixed
system: h200-hgx
models: [llama-3.1-8b]
phase: mixed
decode: {decode}
requests: [{{new: 100 tokens}}]
strategies: [tensor]
gpus: [8]
batch: 1
"""
TALK = """name: talk
system: h200-hgx
models: [llama-3.1-8b]
conversation:
  cp: {cp}
  tpa: 1
  turns: {turns}
"""
RINGS = """name: rings
system: h200-hgx
models: [llama-3.1-8b]
thresholds:
  cp: [{cp}]
  tpa: 1
  new_tokens: {{from: 128 tokens, to: 1Ki tokens}}
  longest: 4Ki tokens
  new_tokens_per_octave: {octave}
  miss_rate_per_octave: 1
  test_points: {points}
"""
PARTS = """name: parts
system: h200-hgx
models: [llama-7b]
partition:
  contexts: {contexts}
  processes: [{processes}]
  granularity: 512 tokens
  spacing: {spacing}
"""


SERVED = """name: served
system: h200-hgx
engine: vllm
models: [llama-3.1-8b]
workload: {input: 64 tokens, output: 4 tokens}
strategies: [tensor]
gpus: [1]
batch: [1]
"""


def decode(system="h200-hgx", context="8Ki tokens", strategy="tensor", gpus="[8]", batch="[1]", more=""):
    return DECODE.format(**locals())


def prefill(requests="[{new: 8Ki tokens}]", strategy="tensor", more=""):
    return PREFILL.format(**locals())


def noise(**keys):
    text = ", ".join(f"{k}: {v}" for k, v in keys.items())
    return prefill(more=f"noise: {{load: 0.1, {text}}}\n")


def turns(n):
    return TALK.format(cp=2, turns="[" + ", ".join(["{new: 64 tokens}"] * n) + "]")


def rings(cp=2, octave=1, points=100):
    return RINGS.format(**locals())


def parts(contexts="[4Ki tokens]", processes="2", spacing="4Ki tokens"):
    return PARTS.format(**locals())


def listed(n, item):
    return "[" + ", ".join([item] * n) + "]"


SERVE = ["--plan", "tensor:tpa=1,tpf=1"]

# What it is, the command, the scenario at a value, the limit, and more arguments.
CASES = [
    ("GPUs of a system", "sweep", lambda n: decode(), 8192, lambda n: ["--set", f"fabric.nodes={(n + 7) // 8}"]),
    ("nodes", "sweep", lambda n: decode(), 4096, lambda n: ["--set", f"fabric.nodes={n}", "--set", "fabric.gpus_per_node=1"]),
    ("batch", "sweep", lambda n: decode(batch=f"[{n}]"), 65536, None),
    ("batches in a range", "sweep", lambda n: decode(batch=f"{{from: 1, to: {n}}}"), 65536, None),
    ("context", "sweep", lambda n: decode(context=f"{n} tokens"), 10**9, None),
    ("sequences of a prefill", "sweep", lambda n: prefill(requests=f"[{{new: 16 tokens, count: {n}}}]"), 4096, None),
    ("sequences of a prefill in a list", "sweep", lambda n: prefill(requests=listed(n, "{new: 16 tokens}")), 4096, None),
    ("decoding requests of a group", "sweep", lambda n: MIXED.format(decode=f"[{{context: 64 tokens, count: {n}}}]"), 65536, None),
    ("groups of decoding requests", "sweep", lambda n: MIXED.format(decode=listed(n, "{context: 64 tokens}")), 4096, None),
    ("new tokens", "sweep", lambda n: prefill(requests=f"[{{new: {n} tokens}}]"), 10**9, None),
    ("noise: flows", "sweep", lambda n: noise(flows=n, seeds=1), 1000, None),
    ("noise: pairs", "sweep", lambda n: noise(pairs=n, seeds=1), 8192, None),
    ("noise: seeds", "sweep", lambda n: noise(seeds=n), 4096, None),
    ("turns", "conversation", turns, 4096, None),
    ("ranks of a conversation", "conversation", lambda n: TALK.format(cp=n, turns="[{new: 8Ki tokens}]"), 1024,
     lambda n: ["--set", "fabric.nodes=1024"]),
    ("ranks of a ring", "thresholds", lambda n: rings(cp=n), 1024, lambda n: ["--set", "fabric.nodes=1024"]),
    ("points per octave", "thresholds", lambda n: rings(octave=n), 64, None),
    ("test points", "thresholds", lambda n: rings(points=n), 100_000, None),
    ("lengths of a partition", "partition", lambda n: parts(contexts=f"{{from: 1024 tokens, to: {1024 * n} tokens, step: 1024 tokens}}",
                                                          spacing="1Mi tokens"), 256, None),
    ("users of a closed loop", "serve", lambda n: SERVED, 1_000_000, lambda n: [*SERVE, "--users", str(n), "--requests", "2000"]),
    ("replicas", "serve", lambda n: SERVED, 1024, lambda n: [*SERVE, "--rate", "5/s", "--requests", "2000", "--replicas", str(n)]),
    ("requests a second", "serve", lambda n: SERVED, 10**9, lambda n: [*SERVE, "--rate", f"{n}/s", "--requests", "100"]),
    ("seconds between requests", "serve", lambda n: SERVED, 10**6, lambda n: [*SERVE, "--rate", f"{1 / n!r}/s", "--requests", "100"]),
    ("seconds of all requests", "serve", lambda n: SERVED, 10**4, lambda n: [*SERVE, "--rate", "1e-6/s", "--requests", str(n)]),
    ("seconds of thought", "serve", lambda n: SERVED, 10**7, lambda n: [*SERVE, "--users", "2", "--think", f"{n} s", "--requests", "100"]),
    ("seed of arrivals", "serve", lambda n: SERVED, 10**15, lambda n: [*SERVE, "--rate", "5/s", "--requests", "100", "--seed", str(n)]),
    ("threads", "sweep", lambda n: decode(), 1024, lambda n: ["--threads", str(n)]),
]


def run(command, scenario, arguments):
    with open("limit.yaml", "w") as file:
        file.write(scenario)
    return subprocess.run([BINARY, command, "limit.yaml", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=SECONDS)


def main():
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for what, command, scenario, limit, more in CASES:
            try:
                within = run(command, scenario(limit), more(limit) if more else [])
                beyond = run(command, scenario(limit + 1), more(limit + 1) if more else [])
            except subprocess.TimeoutExpired:
                faults.append(f"{what}: {limit} takes more than {SECONDS} s")
                continue
            said = (within.stderr.splitlines() or [""])[0]
            print(f"  {what}: {limit}: exit {within.returncode} {said[:100]}; one more: {(beyond.stderr.splitlines() or [''])[0][:120]}",
                  flush=True)
            if within.returncode not in (0, 3):
                faults.append(f"{what}: {limit} is the limit, but: exit {within.returncode}: {within.stderr[:300]}")
            if beyond.returncode != 2 or not any(c.isdigit() for c in beyond.stderr):
                faults.append(f"{what}: {limit + 1} is beyond the limit, but: exit {beyond.returncode}: {beyond.stderr[:300]}")
    for fault in faults:
        print("FAILED:", fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
