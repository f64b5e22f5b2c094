"""Fails one allocation, one write, or the making of threads, of short runs: each ends with a documented exit code, never by an exception that
nobody caught, and leaves a folder that is whole or none; one that ends as the whole run does says and writes the same bytes. Usage: failures.py BINARY PRELOAD [EVERY]
Every allocation of a run where EVERY is 1; by default the first ones and then some, over the whole run."""
import os
import shutil
import subprocess
import sys
import tempfile

BINARY, PRELOAD = (os.path.abspath(path) for path in sys.argv[1:3])
SAMPLES = 24
GOLDEN = os.path.dirname(os.path.abspath(__file__))
PLAN = "helix:kvp=4,tpa=4,tpf=16,batch=4"
LINE = ["llama-3.1-8b", "--system", "h100-hgx", "--gpus", "2", "--input", "1K", "--output", "16"]
RUNS = [
    ["list", "strategies"],
    ["simulate", f"{GOLDEN}/small.yaml", "--model", "llama-3.1-405b", "--plan", PLAN, "-o", "out"],
    ["conversation", f"{GOLDEN}/talk.yaml", "-o", "out"],
    ["serve", "llama-3.1-8b", "--system", "h100-hgx", "--gpus", "2", "--input", "1K", "--output", "16", "--plan", "tensor:tpa=2,tpf=2",
     "--trace", f"{GOLDEN}/../planner/traces/own.csv", "-o", "out"],
    ["serve", *LINE, "--plan", "tensor:tpa=2,tpf=2", "--users", "4", "--think", "1 s", "--requests", "20", "-o", "out"],
    ["serve", *LINE, "--plan", "tensor:tpa=2,tpf=2", "--slo", "ttft p99 2 s", "--requests", "50", "--json"],
    ["plan", *LINE, "--save", "out/question.yaml"],
    ["plan", *LINE, "--engine", "vllm", "--rate", "5/s", "--slo", "ttft p99 2 s", "--requests", "100", "--threads", "2", "--save", "out/question.yaml"],
    ["explain", *LINE, "--plan", "tensor:tpa=2,tpf=2"],
    ["compare", *LINE, "--plan", "tensor:tpa=2,tpf=2", "--plan", "tensor:tpa=1,tpf=1"],
    ["sweep", "NO-SUCH-NAME"],
]
# With a third of the samples.
MORE = [
    ["plan", *LINE, "--gpu-hour", "2", "--json"],
    ["handoff", f"{GOLDEN}/small.yaml", "--model", "llama-3.1-405b", "--tokens", "1K", "--prefill", "tensor:tpa=4,tpf=4,batch=1",
     "--decode", "tensor:tpa=8,tpf=8,batch=1"],
    ["calibrate", "gemm.csv", "--system", "h200-hgx", "--part", "-o", "out/fitted.yaml"],
    ["calibrate", "gemm_w.csv", "prefill_w.csv", "decode_w.csv", "--system", "h200-hgx", "--power", "-o", "out/power.yaml"],
    ["calibrate", "served.csv", "--engine", "vllm", "-o", "out/profile.yaml", "--csv", "out/rows.csv"],
    ["sweep", "few.yaml", "--all", "--threads", "2", "-o", "out"],
    ["thresholds", f"{GOLDEN}/rings.yaml", "--threads", "2", "-o", "out"],
    ["partition", f"{GOLDEN}/parts.yaml", "--threads", "2", "-o", "out"],
    ["evaluate", "gemm.csv", "--system", "h200-hgx", "--csv", "out/rows.csv"],
]
# Seconds each: with two.
SLOW = [
    ["accuracy", "--measurements", "h200-hgx=measured", "-o", "out/accuracy.md"],
    ["validate", "kv_runahead", "--no-sensitivity", "-o", "out"],
    ["verify", "apb", "--json"],
]
DOCUMENTED = {0, 2, 3}


def tables():
    """Measurements that `calibrate` fits to."""
    shapes = [(m, n, k) for m in (64, 256, 1024, 4096) for n in (512, 1024, 2048) for k in (1024, 2048, 4096)]
    rows = [f"{m},{n},{k},bf16,nvjet,{5 + m * n * k * 1e-8:.3f}" for m, n, k in shapes]
    write("gemm.csv", "m,n,k,dtype,kernel,latency_us", rows)
    os.makedirs("measured", exist_ok=True)
    write("measured/gemm.csv", "m,n,k,dtype,kernel,latency_us", rows)
    few = open(f"{GOLDEN}/small.yaml").read().replace("[llama-3.1-405b, deepseek-r1]", "[llama-3.1-405b]")
    with open("few.yaml", "w") as file:
        file.write(few.replace("[4, 8, 16]", "[8]"))
    heads = "heads_q,heads_kv,head_dim,window,dtype_compute,dtype_kv,kernel"
    sizes = [(b, s) for b in range(1, 9) for s in range(1, 9)]
    watts = {"gemm": ("m,n,k,dtype,kernel", [*rows, *(f"{32 * b},{256 * s},1024,bf16,nvjet,{5 + b * s:.3f}" for b, s in sizes if b < 8)]),
             "prefill": (f"batch,seq_q,kv_cached,{heads}", [f"{b},{512 * s},0,64,8,128,0,bf16,bf16,fa3,{20 * b * s * s}" for b, s in sizes]),
             "decode": (f"batch,kv_len,{heads}", [f"{b},{1024 * s},64,8,128,0,bf16,bf16,fa3,{9 + 2 * b * s}" for b, s in sizes])}
    for name, (columns, measured) in watts.items():
        write(f"{name}_w.csv", f"{columns},latency_us,power_w,power_limit_w", [f"{row},{300 + 7 * i % 390},700" for i, row in enumerate(measured)])
    write("served.csv", "system,model,precision,backend,backend_version,isl_tokens,osl_tokens,concurrency,gpus,tp,pp,attn_dp,moe_tp,"
          "moe_ep,ttft_ms,tpot_ms,measured,source",
          [f"h100_sxm,Qwen/Qwen3-32B,fp8,vllm,0.24.0,{tokens},256,{users},1,1,1,,1,1,{60 + 20 * users},{9 + 0.2 * users},,x.csv"
           for tokens in (1024, 2048) for users in (1, 4, 16)])


def write(name, head, rows):
    with open(name, "w") as file:
        file.write("\n".join([head, *rows, ""]))


def has_folder(arguments):
    """Whether files are written to a folder that is there before."""
    return any(part.startswith("out/") for part in arguments)


def run(arguments, **environment):
    shutil.rmtree("out", ignore_errors=True)
    if has_folder(arguments):
        os.mkdir("out")
    return subprocess.run([BINARY, *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                          env={**os.environ, "LD_PRELOAD": PRELOAD, "PATH": "/nonexistent", **environment})


def contents():
    """Of each file of the output folder; None if it is not there."""
    if not os.path.isdir("out"):
        return None
    found = {}
    for folder, _, names in os.walk("out"):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, "out")] = file.read()
    return found


def told(ended):
    """Standard output but for what it says of pictures, which are allowed to be missing and tried one by one."""
    return [line for line in ended.stdout.splitlines() if not line.strip().startswith(b"warning: no ")]


def changed(whole, ended, written, left):
    """What a run that ends as the whole one does says or writes otherwise than it, which nobody would notice."""
    if ended.returncode != whole.returncode:
        return []
    names = sorted({*written, *left}) if None not in (written, left) else []
    return [f"{name} changed" for name in names if written.get(name) != left.get(name)] + (
        ["standard output changed"] if told(ended) != told(whole) else [])


def at_which(count, samples):
    if len(sys.argv) > 3:
        return range(1, count + 1, int(sys.argv[3]))
    if samples == 1:
        return sorted({max(1, count // 3), max(1, 2 * count // 3)})
    first = range(1, min(count, samples) + 1)
    return sorted({*first, *(1 + i * count // samples for i in range(samples))})


def without_threads():
    """As many as the system makes, and a note; the same answer. How many runs were wrong."""
    faults = 0
    deployment = ["plan", *LINE, "--engine", "vllm", "--rate", "5/s", "--slo", "ttft p99 2 s", "--requests", "100", "--threads", "8"]
    for question in (["sweep", f"{GOLDEN}/small.yaml", "--threads", "8", "-o", "out"], deployment):
        whole, *fewer = [run(question, MOST_THREADS=str(most)) for most in (0, 1, 2, 4)]
        for ended in fewer:
            note = b"the system makes no more threads" in ended.stderr
            if ended.returncode != whole.returncode or ended.stdout != whole.stdout or not note:
                faults += 1
                print(f"FAILED: {question[0]} on fewer threads: exit {ended.returncode} (whole: {whole.returncode}): {ended.stderr[-300:]!r}")
    return faults


def main():
    faults, tried = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        tables()
        for arguments in RUNS + MORE + SLOW:
            samples = SAMPLES if arguments in RUNS else SAMPLES // 3 if arguments in MORE else 1
            whole = run(arguments, COUNT_TO="counts")
            expected = whole.returncode
            files = sorted(os.listdir("out")) if os.path.isdir("out") else None
            written = contents()
            counts = [int(n) for n in open("counts").read().split()]
            for what, count in zip(("FAIL_ALLOCATION", "FAIL_WRITE"), counts):
                for at in at_which(count, samples):
                    tried += 1
                    ended = run(arguments, **{what: str(at)})
                    left = sorted(os.listdir("out")) if os.path.isdir("out") else None
                    good = ended.returncode in DOCUMENTED and (ended.returncode != 0 or left == files)
                    silent = changed(whole, ended, written, contents())
                    hidden = [f for f in os.listdir(".") if f.startswith(".")]
                    # Files that are asked for one by one are each whole or not there.
                    some = has_folder(arguments) and left is not None and set(left) <= set(files)
                    if good and (some or left in (None, files)) and not hidden and not silent:
                        continue
                    faults += 1
                    print(f"FAILED: {' '.join(arguments)}: {what}={at}: exit {ended.returncode} (whole: {expected}), "
                          f"left {left} {hidden} {silent}: {ended.stderr.decode(errors='replace')[-300:]}", flush=True)
                    for name in hidden:
                        shutil.rmtree(name, ignore_errors=True)
        faults += without_threads()
    print(f"{tried} failures tried")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
