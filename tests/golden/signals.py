"""A signal in the middle of long work: every command ends within half a second, with 130, 143 or 129 and a line that says
what was kept, and leaves nothing half-written. Usage: signals.py BINARY"""
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

BINARY = os.path.abspath(sys.argv[1])
GOLDEN = os.path.dirname(os.path.abspath(__file__))
LIMIT = 0.5  # seconds; other programs on the machine may take the processor: the fastest of three counts

GROUPS = ["serve", "deepseek-r1", "--system", "h200-hgx", "--gpus", "8", "--input", "8K", "--output", "16", "--plan", "dp_ep:dp=8,ep=8",
          "--users", "1000000", "--requests", "2000000"]


def write(name, text):
    with open(name, "w") as file:
        file.write(text)


def questions():
    turns = ", ".join("{new: 512 tokens, output: 512 tokens}" for _ in range(1500))
    talk = open(f"{GOLDEN}/talk.yaml").read()
    write("talk.yaml", talk[: talk.index("  turns:")] + f"  turns: [{turns}]\n")
    rng = random.Random(1)
    shapes = rng.sample([(m, n, k) for m in range(1, 129) for n in range(1, 65) for k in range(1, 9)], 40_000)
    rows = "".join(f"{64 * m},{128 * n},{1024 * k},bf16,nvjet,{rng.uniform(5, 900):.3f}\n" for m, n, k in shapes)
    write("gemm.csv", "m,n,k,dtype,kernel,latency_us\n" + rows)
    write("trace.csv", "arrival_s,input_tokens,output_tokens\n" + "".join(f"{i / 100},1000,10\n" for i in range(2_000_000)))
    head = "system,model,precision,backend,backend_version,isl_tokens,osl_tokens,concurrency,gpus,tp,pp,attn_dp,moe_tp,moe_ep,ttft_ms,tpot_ms,measured,source\n"
    loops = "".join(f"h100_sxm,{model},fp8,vllm,0.24.0,{tokens},256,{users},1,1,1,,1,1,{60 + 20 * users},{9 + 0.2 * users},,x.csv\n"
                    for model in ("meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-32B") for tokens in range(512, 2048, 64)
                    for users in (1, 2, 4, 8, 16, 32, 64))
    write("served.csv", head + loops)
    # A million chunks would be refused for their memory on a machine of 24 GB: whether the signal or the refusal came
    # first was a race.
    chunks = "pipeline:pp=8,prefill_chunk=4"
    return {
        "plan": ["plan", "deepseek-r1", "--system", "gb200-nvl72", "--gpus", "72", "--input", "32K", "--output", "1K",
                 "--ttl", "20 ms", "--threads", "1"],
        "sweep": ["sweep", "helix_gb200_1m", "--exhaustive", "--all", "-o", "out", "--threads", "1"],
        "sweep on many threads": ["sweep", "helix_gb200_1m", "--exhaustive", "--threads", "1024"],
        "serve": ["serve", "llama-3.1-8b", "--system", "h100-hgx", "--gpus", "2", "--input", "1K", "--output", "64",
                  "--plan", "tensor:tpa=2,tpf=2", "--rate", "5/s", "--requests", "2000000"],
        "serve a million users": ["serve", "llama-3.1-8b", "--system", "h100-hgx", "--gpus", "2", "--input", "1K", "--output", "16",
                                  "--plan", "tensor:tpa=2,tpf=2", "--users", "1000000", "--requests", "2000000"],
        "serve long prompts that wait": ["serve", "llama-3-8b-1m", "--system", "h100-hgx", "--gpus", "8", "--plan", "tensor:tpa=8,tpf=8",
                                         "--engine", "vllm", "--any-context", "--input", "900K", "--output", "4", "--users", "200000",
                                         "--requests", "200000"],
        # Each has a scheduler for each of eight attention groups; of pairs both servers have all who wait.
        "serve a million users in groups": [*GROUPS, "--engine", "sglang"],
        "serve a million users in pairs of groups": [*GROUPS, "--engine", "sglang", "--prefill", "dp_ep:dp=8,ep=8"],
        "serve a million users from one queue": [*GROUPS, "--engine", "trtllm"],
        "serve a trace": ["serve", "llama-3.1-8b", "--system", "h100-hgx", "--gpus", "2", "--plan", "tensor:tpa=2,tpf=2",
                          "--input", "1K", "--output", "10", "--trace", "trace.csv", "-o", "out"],
        "sweep of prefill": ["sweep", "prefill_405b_gb200_1m", "--threads", "2"],
        "simulate": ["simulate", "prefill_llama8b_1m", "--plan", chunks, "-o", "simulated"],
        "explain": ["explain", "prefill_llama8b_1m", "--plan", chunks],
        "compare": ["compare", "prefill_llama8b_1m", "--plan", chunks, "--plan", "pipeline:pp=8,prefill_chunk=8"],
        "handoff": ["handoff", "helix_gb200_1m", "--model", "llama-3.1-405b", "--tokens", "128K", "--prefill", "tensor:tpa=8,tpf=8,batch=1",
                    "--decode", "helix:kvp=8,tpa=8,tpf=64,batch=4", "--at-once", "1000"],
        "thresholds": ["thresholds", "thresholds_405b_gtt", "--threads", "1", "-o", "out"],
        "partition": ["partition", "partition_llama7b_a100", "--threads", "1", "-o", "out"],
        "conversation": ["conversation", "talk.yaml", "-o", "out"],
        "validate": ["validate", "all", "--threads", "1", "-o", "out"],
        "verify": ["verify", "all", "--threads", "1"],
        "calibrate": ["calibrate", "gemm.csv", "--system", "h200-hgx", "-o", "fitted.yaml"],
        "calibrate an engine": ["calibrate", "served.csv", "--engine", "vllm", "-o", "profile.yaml"],
        "evaluate": ["evaluate", "gemm.csv", "--system", "h200-hgx", "--csv", "rows.csv"],
        "accuracy": ["accuracy", "--measurements", "h200-hgx=measured", "-o", "accuracy.md"],
    }


# Seconds until the signal where it is not 0.4: when all users are there, whose memory is to be given back.
LATER = {"serve a million users": 2.5, "serve long prompts that wait": 4, "serve a million users in groups": 2.5,
         "serve a million users in pairs of groups": 4, "serve a million users from one queue": 2.5}


def attempt(arguments, number, delay, gaps=()):
    """Seconds from the signal to the end, and what it said; None if it had ended before. After each gap the signal comes
    again."""
    process = subprocess.Popen([BINARY, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
    time.sleep(delay)
    if process.poll() is not None:
        return None
    begin = time.monotonic()
    process.send_signal(number)
    for gap in gaps:
        time.sleep(gap)
        process.send_signal(number)
    _, said = process.communicate(timeout=60)
    return time.monotonic() - begin, process.returncode, said


def check(name, arguments, number):
    fastest, longest = None, LATER.get(name, 0.4)
    for _ in range(6):
        delay, found = longest, None
        while found is None and delay > 0.01:
            found = attempt(arguments, number, delay)
            delay /= 2
        if found is None:
            return f"{name}: ended before the signal"
        seconds, code, said = found
        if code == 0:  # it was ending by itself: earlier, then
            longest = delay
            continue
        if code != 128 + number:
            return f"{name}: exit {code} after signal {number}: {said}"
        if "interrupted" not in said:
            return f"{name}: says nothing: {said!r}"
        if "internal error" in said:
            return f"{name}: {said}"
        late = "what was not finished is lost" in said
        if fastest is None or seconds < fastest[0]:
            fastest = (seconds, late)
        if fastest[0] < LIMIT:
            break
    if fastest is None:
        return f"{name}: always ended by itself before it took the signal"
    print(f"  {name}: {fastest[0] * 1000:.0f} ms{' (by force)' if fastest[1] else ''}", flush=True)
    if fastest[1]:
        return f"{name}: a loop does not ask whether to stop: the process was ended by force"
    if fastest[0] > LIMIT:
        return f"{name}: {fastest[0]:.2f} s from signal {number} to the end"
    left = [f for _, folders, files in os.walk(".") for f in folders + files if ".shardline-" in f]
    if left and not fastest[1]:
        return f"{name}: left behind: {left}"
    return None


def check_late(name, arguments):
    """While files are written, which is the last that a sweep does."""
    begin = time.monotonic()
    subprocess.run([BINARY, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    whole = time.monotonic() - begin
    for part in (0.55, 0.65, 0.75, 0.85):
        found = [f for f in (attempt(arguments, signal.SIGINT, part * whole) for _ in range(3)) if f and f[1] == 128 + signal.SIGINT]
        if found and all("what was not finished is lost" in said for _, _, said in found):
            return f"{name}: at {part:.0%} of its time it does not ask whether to stop"
    return None


def check_twice(name, arguments):
    """timeout(1) signals its child and then its group: the second signal ends nothing that the first one does not."""
    for gaps in ((0,), (0.001,), (0.003,), (0.001, 0.001, 0.001)):
        found = attempt(arguments, signal.SIGTERM, 0.4, gaps)
        if found is None:
            return f"{name}: ended before the signals"
        _, code, said = found
        if code != 128 + signal.SIGTERM or "interrupted" not in said:
            return f"{name}: exit {code} after signals {gaps} s apart: {said!r}"
    return None


def commands():
    """Of the program's help."""
    said = subprocess.run([BINARY, "--help"], capture_output=True, text=True).stdout.split("Subcommands:")[1].split("Example:")[0]
    return {line.split()[0] for line in said.splitlines() if line.startswith("  ") and line[2] != " "}


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        cases = questions()
        os.mkdir("measured")
        os.link("gemm.csv", "measured/gemm.csv")
        # `list` ends before a signal can come: it reads titles alone, in less than 20 ms.
        asked = {words[0] for words in cases.values()} | {"list"}
        faults = [f"no long question of {name}" for name in sorted(commands() - asked)]
        for i, (name, arguments) in enumerate(cases.items()):
            faults.append(check(name, arguments, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)[i % 3]))
        faults.append(check_twice("sweep that is signalled twice", cases["sweep"]))
        faults.append(check_late("sweep that writes", ["sweep", "m3_gb200_1m", "--all", "-o", "written", "--threads", "1"]))
        faults = [f for f in faults if f]
        for fault in faults:
            print("FAILED:", fault)
        return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
