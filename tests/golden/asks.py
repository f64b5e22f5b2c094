"""No command works for longer than 50 ms without asking whether to stop: the longest time of a processor between two
questions, of every command and of what each of them does differently; and how long it takes to end once the answer is
to stop. Usage: asks.py BINARY [--quick] [NAME]...
Processor time, since another program on the machine must not decide a test; on an idle machine it is what a signal
waits for. It still counts what shares a core, its caches or the hypervisor: of up to TRIES runs the least counts. A run
that lasts is ended after SECONDS, as a user would. NAME: parts of names, for those alone.
--quick, for ctest: a question of each kind, not all scenarios that ship, half as long, and half as much again as a limit,
for a slower machine: the most was 38 ms, where a page takes 13 us when it is first written (107 ms of 32 MiB)."""
import os
import signal
import subprocess
import sys
import tempfile

import signals

BINARY = os.path.abspath(sys.argv[1])
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NAMES = [a for a in sys.argv[2:] if a != "--quick"]
QUICK = len(NAMES) < len(sys.argv[2:])
LIMIT = 0.075 if QUICK else 0.05  # seconds of a processor
ENDING = 0.3  # s from the answer to the end, which is by force after 0.4
SECONDS = 6 if QUICK else 15  # of a run
TO_ITS_END = {"serve users": 60}  # s: whose files are written
TRIES = 4


def questions():
    """Those that signals are sent to, and others by what they work on."""
    cases = signals.questions()
    line = ["llama-3.1-70b", "--system", "h200-hgx", "--gpus", "8", "--input", "32K", "--output", "1K"]
    cases["list"] = ["list", "systems"]
    cases["plan of a rate"] = ["plan", *line, "--rate", "4/s"]
    cases["plan of targets"] = ["plan", *line, "--rate", "4/s", "--slo", "ttft p99 9 s, tpot p90 60 ms"]
    cases["explain of a line"] = ["explain", *line]
    cases["compare of a line"] = ["compare", *line]
    cases["serve to a target"] = ["serve", *line, "--slo", "ttft p99 2 s, tpot p99 40 ms"]
    cases["serve users"] = ["serve", *line, "--users", "200", "--requests", "5000" if QUICK else "20000", "--think", "5 s", "-o", "served"]
    # Of kernels that a calibration has, so that each row is priced, and told.
    shapes = [(m, n, k) for m in range(1, 129) for n in range(1, 65) for k in range(1, 37)]
    rows = "".join(f"{64 * m},{128 * n},{256 * k},bf16,torch_flow,{5 + m * n * k / 1000:.3f}\n" for m, n, k in shapes)
    signals.write("priced.csv", "m,n,k,dtype,kernel,latency_us\n" + rows)
    cases["evaluate to a document"] = ["evaluate", "priced.csv", "--system", "h200-hgx", "--json"]
    cases["evaluate to a table"] = ["evaluate", "priced.csv", "--system", "h200-hgx", "--csv", "priced_rows.csv"]
    cases["verify by strategy"] = ["verify", "all"]
    # Prompts of which many share a beginning, so that steps are of many lengths.
    prompts = "".join(f"{20 * i},{512 * (2 + i % 40)},1,{i % 97 * 100}-{i % 97 * 100 + i % 40} {10**6 + i}\n" for i in range(20_000 if QUICK else 200_000))
    signals.write("prompts.csv", "arrival_ms,input_tokens,output_tokens,block_ids\n" + prompts)
    cases["thresholds of prompts"] = ["thresholds", f"{ROOT}/tests/golden/rings.yaml", "--trace", "prompts.csv", "--threads", "1", "--json"]
    if QUICK:
        # A quarter of the chunks: in half of the time a busy machine comes to what follows their lowering, too.
        return {name: [a.replace("prefill_chunk=4", "prefill_chunk=16") for a in arguments] for name, arguments in cases.items()}
    for name in sorted(os.listdir(f"{ROOT}/scenarios")):
        stem = name.removesuffix(".yaml")
        if name.endswith(".yaml") and stem not in {"README"}:
            command = next((c for c in ("thresholds", "partition", "conversation") if stem.startswith(c)), "sweep")
            cases[f"{command} {stem}"] = [command, stem, *([] if command == "conversation" else ["--threads", "1"])]
    return cases


def gap_of(arguments, seconds):
    """Seconds of the longest gap and of the end, and the addresses of where both questions were asked; what the run said."""
    if os.path.exists("gaps"):
        os.remove("gaps")
    process = subprocess.Popen([BINARY, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True, env={**os.environ, "SHARDLINE_ASK_GAPS": "gaps"})
    try:
        _, said = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    if not os.path.exists("gaps"):
        return None, 0, [], said
    times, first, second = open("gaps").read().split("\n")[:3]
    gap, ending = map(float, times.split())
    return gap, ending, (first.split(), second.split()), said


def least_gap_of(name, arguments):
    """The same of the run with the shortest, of as many as it takes to be within the limits."""
    runs, lasts = [], TO_ITS_END.get(name, SECONDS)
    for _ in range(TRIES):
        runs.append(gap_of(arguments, lasts))
        seconds, ending = runs[-1][:2]
        if seconds is None:  # ended by force while it gave back memory, which signals.py looks at: it has less the next time
            lasts /= 2
        elif seconds <= LIMIT and ending <= ENDING:
            break
    return min(runs, key=lambda r: float("inf") if r[0] is None else max(r[0] / LIMIT, r[1] / ENDING))


def places(frames):
    out = subprocess.run(["addr2line", "-Cfse", BINARY, *frames[3:12]], capture_output=True, text=True).stdout.splitlines()
    return "\n".join(f"      {function[:110]}" for function in out[::2] if function != "??")


def main():
    faults, longest = [], []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        cases = questions()
        os.mkdir("measured")
        os.link("gemm.csv", "measured/gemm.csv")
        for name, arguments in cases.items():
            if NAMES and not any(part in name for part in NAMES):
                continue
            seconds, ending, frames, said = least_gap_of(name, arguments)
            if seconds is None:
                faults.append(f"{name}: {said[-300:]}")
                continue
            longest.append((seconds, name))
            print(f"  {name}: {seconds * 1000:.0f} ms, to end {ending * 1000:.0f} ms", flush=True)
            if ending > ENDING:
                faults.append(f"{name}: {ending * 1000:.0f} ms from the answer to the end")
            if seconds > LIMIT:
                faults.append(f"{name}: {seconds * 1000:.0f} ms without a question, from\n{places(frames[0])}\n    to\n{places(frames[1])}")
    if not longest:
        faults.append("nothing was asked")
    for fault in faults:
        print("FAILED:", fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
