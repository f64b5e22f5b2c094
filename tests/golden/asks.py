"""No command works for longer than 50 ms without asking whether to stop: the longest time of a processor between two
questions, of every command and of what each of them does differently; and how long it takes to end once the answer is
to stop. Usage: asks.py BINARY [NAME]...
Processor time, since another program on the machine must not decide a test; on an idle machine it is what a signal
waits for. A run that lasts is ended after SECONDS, as a user would."""
import os
import signal
import subprocess
import sys
import tempfile

import signals

BINARY = os.path.abspath(sys.argv[1])
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIMIT = 0.05  # seconds of a processor
ENDING = 0.3  # s from the answer to the end, which is by force after 0.4
SECONDS = 15  # of a run


def questions():
    """Those that signals are sent to, and others by what they work on."""
    cases = signals.questions()
    line = ["llama-3.1-70b", "--system", "h200-hgx", "--gpus", "8", "--input", "32K", "--output", "1K"]
    cases["list"] = ["list", "systems"]
    cases["plan of a rate"] = ["plan", *line, "--rate", "4/s"]
    cases["explain of a line"] = ["explain", *line]
    cases["compare of a line"] = ["compare", *line]
    cases["serve to a target"] = ["serve", *line, "--slo", "ttft p99 2 s, tpot p99 40 ms"]
    cases["serve users"] = ["serve", *line, "--users", "200", "--requests", "20000", "--think", "5 s", "-o", "served"]
    cases["verify by strategy"] = ["verify", "all"]
    for name in sorted(os.listdir(f"{ROOT}/scenarios")):
        stem = name.removesuffix(".yaml")
        if name.endswith(".yaml") and stem not in {"README"}:
            command = next((c for c in ("thresholds", "partition", "conversation") if stem.startswith(c)), "sweep")
            cases[f"{command} {stem}"] = [command, stem, *([] if command == "conversation" else ["--threads", "1"])]
    return cases


def gap_of(arguments):
    """Seconds of the longest gap and of the end, and the addresses of where both questions were asked; what the run said."""
    if os.path.exists("gaps"):
        os.remove("gaps")
    process = subprocess.Popen([BINARY, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True, env={**os.environ, "SHARDLINE_ASK_GAPS": "gaps"})
    try:
        _, said = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    if not os.path.exists("gaps"):
        return None, 0, [], said
    times, first, second = open("gaps").read().split("\n")[:3]
    seconds, ending = map(float, times.split())
    return seconds, ending, (first.split(), second.split()), said


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
            if len(sys.argv) > 2 and not any(part in name for part in sys.argv[2:]):
                continue
            seconds, ending, frames, said = gap_of(arguments)
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
