"""What a question needs of memory, as it is estimated before it starts, is never below what it then has at its most, and
at most three times that. The estimate is what --memory refuses; the peak is the resident memory that the kernel counts.
Usage: memory.py BINARY"""
import os
import random
import re
import subprocess
import sys
import tempfile

BINARY = os.path.abspath(sys.argv[1])
PLACE = os.path.dirname(os.path.abspath(__file__))
MOST = 3
UNITS = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}


def write(name, text):
    with open(name, "w") as file:
        file.write(text)


def tables():
    rng = random.Random(1)
    shapes = rng.sample([(m, n, k) for m in range(1, 257) for n in range(1, 129) for k in range(1, 9)], 150_000)
    rows = [f"{64 * m},{128 * n},{1024 * k},bf16,nvjet,{rng.uniform(5, 900):.3f}\n" for m, n, k in shapes]
    write("gemm.csv", "m,n,k,dtype,kernel,latency_us\n" + "".join(rows))
    write("few.csv", "m,n,k,dtype,kernel,latency_us\n" + "".join(rows[:8_000]))
    lengths = [rng.randrange(1, 200) for _ in range(40_000)]
    write("crowd.csv", "arrival_s,input_tokens,output_tokens,block_ids\n"
          + "".join(f"{i * 1e-5:.5f},{512 * n},4,{1000 * i}-{1000 * i + n - 1}\n" for i, n in enumerate(lengths)))
    os.mkdir("measured")
    os.link("gemm.csv", "measured/gemm.csv")
    caches = rng.sample([(b, kv, q, g) for b in range(1, 129) for kv in range(1, 257) for q in (8, 16, 32, 64) for g in (1, 4)], 60_000)
    write("measured/attention_decode.csv", "batch,kv_len,heads_q,heads_kv,head_dim,window,dtype_compute,dtype_kv,kernel,latency_us\n"
          + "".join(f"{b},{256 * kv},{q},{q // g},128,0,bf16,bf16,fa3,{rng.uniform(5, 900):.3f}\n" for b, kv, q, g in caches))


def questions():
    # By another process: the peak of a child counts what this one has when it forks.
    subprocess.run([sys.executable, os.path.join(PLACE, "memory.py"), BINARY, "tables"], check=True)
    write("wide.yaml", "name: wide\nsummary: \"\"\nphase: decode\nmodels: [deepseek-r1]\nsystem: gb200-nvl72\n"
          "context: 128Ki tokens\nstrategies: [tensor, helix, dp_ep, kv_shard, pipeline]\n"
          "gpus: {from: 1, to: 64, step: double}\nbatch: {from: 1, to: 64}\n")
    study = "name: study\nsystem: h200-hgx\nmodels: [{model}]\n{asked}"
    turns = ", ".join(["{new: 64 tokens, output: 64 tokens}"] * 4096)
    write("talk.yaml", study.format(model="llama-3.1-8b", asked=f"conversation:\n  cp: 2\n  tpa: 1\n  turns: [{turns}]\n"))
    for name, octave, tests in (("nodes", 24, 100), ("tests", 2, 100_000)):
        write(f"{name}.yaml", study.format(model="llama-3.1-8b", asked="thresholds:\n  cp: [2]\n  tpa: 1\n"
              "  new_tokens: {from: 128 tokens, to: 64Ki tokens}\n  longest: 256Ki tokens\n"
              f"  new_tokens_per_octave: {octave}\n  miss_rate_per_octave: {octave}\n  test_points: {tests}\n"))
    write("parts.yaml", study.format(model="llama-7b", asked="partition:\n  contexts: [8Ki tokens, 32Ki tokens]\n"
          "  processes: [2, 4]\n  granularity: 512 tokens\n  spacing: 4Ki tokens\n"))
    served = ["serve", "llama-3.1-8b", "--system", "h100-hgx", "--gpus", "2", "--input", "1K", "--output", "64", "--plan",
              "tensor:tpa=2,tpf=2"]
    # Prompts of users who wait, which are more than the users themselves.
    all_long = ["serve", "llama-3.1-8b", "--system", "h100-hgx", "--gpus", "2", "--input", "120K", "--output", "2", "--plan",
                "tensor:tpa=2,tpf=2", "--requests", "30000", "--engine"]
    long = [*all_long, "vllm", "--users", "30000", "--knob", "max_num_batched_tokens=131072"]
    # An open load far beyond what is answered, where all requests wait at once.
    crowd = ["--rate", "100000/s"]
    prompt = ["simulate", "prefill_llama8b_1m", "--plan"]
    return [
        ["simulate", "helix_gb200_1m", "--model", "llama-3.1-405b", "--plan", "helix:kvp=8,tpa=8,tpf=64,batch=4"],
        [*prompt, "tensor:tpa=8,tpf=8,prefill_chunk=64"],
        [*prompt, "tensor:tpa=8,tpf=8,prefill_chunk=24"],
        [*prompt, "pipeline:pp=8,prefill_chunk=512", "-o", "one"],
        [*prompt, "pipeline:pp=32,prefill_chunk=1024", "-o", "two"],
        [*prompt, "ring_pass_kv:cp=16,tpa=1,tpf=1,prefill_chunk=4096"],
        [*prompt, "kv_runahead:cp=4,tpa=8,tpf=8"],
        ["sweep", "prefill_llama8b_128k", "--threads", "2"],
        ["sweep", "wide.yaml", "--threads", "2"],
        ["sweep", "wide.yaml", "--all", "--threads", "2", "-o", "swept"],
        ["thresholds", "nodes.yaml", "-o", "noted"],
        ["thresholds", "tests.yaml", "--threads", "2"],
        ["partition", "parts.yaml", "--threads", "2", "-o", "parted"],
        ["conversation", "talk.yaml", "-o", "talked"],
        [*served, "--rate", "5/s", "--requests", "200000"],
        [*served, "--rate", "5/s", "--requests", "2000", "--replicas", "400"],
        [*served, "--rate", "5/s", "--requests", "2000", "--replicas", "400", "--engine", "sglang"],
        [*served, "--rate", "5/s", "--requests", "2000", "--replicas", "400", "--engine", "vllm"],
        [*served, "--users", "1000000", "--requests", "2000"],
        long,
        [*long, "--prefill", "tensor:tpa=2,tpf=2", "--prefill-knob", "max_num_batched_tokens=131072"],
        [*all_long, "vllm", *crowd],
        [*all_long, "vllm", *crowd, "--replicas", "2", "--failure", "0 at 1 s for 2 s"],
        [*all_long, "sglang", *crowd, "--prefill", "tensor:tpa=2,tpf=2"],
        [*all_long, "sglang", "--users", "30000", "--prefill", "tensor:tpa=2,tpf=2"],
        [*served, *crowd, "--requests", "200000", "--engine", "trtllm", "--replicas", "2", "--failure", "0 at 1 s for 2 s"],
        [*served, *crowd, "--requests", "200000", "--engine", "sglang", "--prefill", "tensor:tpa=2,tpf=2"],
        [*served[:6], *served[-2:], "--engine", "vllm", "--trace", "crowd.csv"],
        ["plan", "deepseek-r1", "--system", "h200-hgx", "--gpus", "16", "--input", "1K", "--output", "64", "--rate", "9/s", "--requests", "3000", "--slo", "ttft p99 1 s", "--threads", "2"],
        ["handoff", "helix_gb200_1m", "--model", "llama-3.1-405b", "--tokens", "128K", "--prefill", "tensor:tpa=8,tpf=8,batch=1", "--decode", "helix:kvp=8,tpa=8,tpf=64,batch=4"],
        ["handoff", "helix_gb200_1m", "--model", "llama-3.1-405b", "--any-context", "--tokens", "4M", "--prefill", "tensor:tpa=8,tpf=8,batch=1", "--decode", "tensor:tpa=8,tpf=8,batch=1"],
        ["validate", "all", "--threads", "2", "-o", "validated"],
        ["verify", "all", "--threads", "2"],
        ["evaluate", "gemm.csv", "--system", "h200-hgx"],
        ["accuracy", "--measurements", "h200-hgx=measured", "-o", "accuracy.md"],
        ["accuracy", "-o", "shipped.md"],
        ["calibrate", "few.csv", "--system", "h200-hgx", "--threads", "2", "-o", "fitted.yaml"],
    ]


def refusal(arguments, allowed):
    """Bytes, from a refusal; nothing where there is none."""
    ran = subprocess.run([BINARY, *arguments, "--memory", allowed], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    said = re.search(r"this needs about ([\d.]+) (\w+) of memory", ran.stderr)
    return float(said[1]) * UNITS[said[2]] if ran.returncode == 2 and said else None


def estimate(arguments):
    """Bytes, from the refusal; nothing where there is none. Steps beside a hand-off are twice as many until they last as long,
    each time with an estimate of its own: the last one counts."""
    needed = refusal(arguments, "1 MB")
    while arguments[0] == "handoff" and needed and (more := refusal(arguments, f"{needed * 1.02 / 1e6:.1f} MB")):
        needed = more
    return needed


def widest():
    """A sweep needs no less than the widest of its plans, on one thread too, whichever strategy comes first: what is let in
    is not refused behind minutes of work."""
    write("chunks.yaml", "name: chunks\nsummary: \"\"\nphase: prefill\nsystem: h100-hgx\nmodels: [llama-3.1-8b]\nany_context: true\n"
          "requests: [{new: 1Mi tokens}]\nstrategies: [tensor, ring_pass_kv]\ngpus: [1, 8]\nbatch: 1\noptions: {prefill_chunk: [16 tokens]}\n")
    needed = estimate(["sweep", "chunks.yaml", "--threads", "1"])
    plans = {plan: estimate(["simulate", "chunks.yaml", "--plan", f"{plan},prefill_chunk=16"])
             for plan in ("tensor:tpa=1,tpf=1", "tensor:tpa=8,tpf=8", "ring_pass_kv:cp=8,tpa=1,tpf=1", "ring_pass_kv:cp=2,tpa=4,tpf=4")}
    most = max(plans, key=plans.get)
    good = most.startswith("ring_pass_kv:cp=8") and needed >= plans[most]
    print(f"  {'' if good else 'FAILED: '}{needed / 1e6:.0f} MB of a sweep, {plans[most] / 1e6:.0f} MB of {most} in it", flush=True)
    return not good


def peak(arguments):
    """The exit code, and the most resident bytes of that process."""
    process = subprocess.Popen([BINARY, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_maxrss * 1024


def main():
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for arguments in questions():
            needed, (code, had) = estimate(arguments), peak(arguments)
            if needed is None or code not in (0, 3):  # 3: the load is not kept up with
                verdict = f"FAILED: exit {code}, estimated {needed}"
            else:
                good = had <= needed <= MOST * had
                verdict = f"{'' if good else 'FAILED: '}{needed / 1e6:.0f} MB estimated, {had / 1e6:.0f} MB had: {needed / had:.2f}"
            faults += verdict.startswith("FAILED")
            print(f"  {' '.join(arguments)}: {verdict}", flush=True)
        faults += widest()
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(tables() if sys.argv[2:] == ["tables"] else main())
