"""Fails one allocation, one write, or the making of threads, of short runs: each ends with a documented exit code, never by an exception that
nobody caught, and leaves a folder that is whole or none. Usage: failures.py BINARY PRELOAD [EVERY]
Every allocation of a run where EVERY is 1; by default the first ones and then some, over the whole run."""
import os
import shutil
import subprocess
import sys
import tempfile

BINARY, PRELOAD = (os.path.abspath(path) for path in sys.argv[1:3])
SAMPLES = 60
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
    ["explain", *LINE, "--plan", "tensor:tpa=2,tpf=2"],
    ["compare", *LINE, "--plan", "tensor:tpa=2,tpf=2", "--plan", "tensor:tpa=1,tpf=1"],
    ["sweep", "NO-SUCH-NAME"],
]
DOCUMENTED = {0, 2, 3}


def run(arguments, **environment):
    shutil.rmtree("out", ignore_errors=True)
    if "--save" in arguments:
        os.mkdir("out")
    return subprocess.run([BINARY, *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                          env={**os.environ, "LD_PRELOAD": PRELOAD, "PATH": "/nonexistent", **environment})


def at_which(count):
    if len(sys.argv) > 3:
        return range(1, count + 1, int(sys.argv[3]))
    first = range(1, min(count, SAMPLES) + 1)
    return sorted({*first, *(1 + i * count // SAMPLES for i in range(SAMPLES))})


def without_threads():
    """As many as the system makes, and a note; the same answer. How many runs were wrong."""
    faults = 0
    question = ["sweep", f"{GOLDEN}/small.yaml", "--threads", "8", "-o", "out"]
    whole, *fewer = [run(question, MOST_THREADS=str(most)) for most in (0, 1, 2, 4)]
    for ended in fewer:
        note = b"the system makes no more threads" in ended.stderr
        if ended.returncode != whole.returncode or ended.stdout != whole.stdout or not note:
            faults += 1
            print(f"FAILED: fewer threads: exit {ended.returncode} (whole: {whole.returncode}): {ended.stderr[-300:]!r}")
    return faults


def main():
    faults, tried = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for arguments in RUNS:
            whole = run(arguments, COUNT_TO="counts")
            expected = whole.returncode
            files = sorted(os.listdir("out")) if os.path.isdir("out") else None
            counts = [int(n) for n in open("counts").read().split()]
            for what, count in zip(("FAIL_ALLOCATION", "FAIL_WRITE"), counts):
                for at in at_which(count):
                    tried += 1
                    ended = run(arguments, **{what: str(at)})
                    left = sorted(os.listdir("out")) if os.path.isdir("out") else None
                    good = ended.returncode in DOCUMENTED and (ended.returncode != 0 or left == files)
                    hidden = [f for f in os.listdir(".") if f.startswith(".")]
                    if good and left in (None, files, [] if "--save" in arguments else None) and not hidden:
                        continue
                    faults += 1
                    print(f"FAILED: {' '.join(arguments)}: {what}={at}: exit {ended.returncode} (whole: {expected}), "
                          f"left {left} {hidden}: {ended.stderr.decode(errors='replace')[-300:]}", flush=True)
                    for name in hidden:
                        shutil.rmtree(name, ignore_errors=True)
        faults += without_threads()
    print(f"{tried} failures tried")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
