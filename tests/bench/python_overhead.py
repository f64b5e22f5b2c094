#!/usr/bin/env python3
"""How much longer a question takes in Python than by the program, taken in turn.

Usage: PYTHONPATH=BUILD/python /usr/bin/python3 python_overhead.py PROGRAM [RUNS [QUESTION...]]
Questions: plan, sweep, simulate; all of them. Prints medians of wall-clock and of CPU seconds, which other work
on the machine disturbs less: of the program as a whole; of the first call in a new interpreter with what its
table needs; and of that interpreter as a whole, which also starts and imports numpy and shardline. Which of the
two comes first changes from run to run, since the second finds caches and clocks as the first left them.
"""

import resource
import statistics
import subprocess
import sys
import time

CALL = """
import time, numpy, shardline
began, cpu = time.perf_counter(), time.process_time()
{}
print(time.perf_counter() - began, time.process_time() - cpu)
"""
# The command line, and the same in Python with the columns of its plans.
QUESTIONS = {
    "plan": (
        "plan nvidia/Llama-3.1-70B-Instruct-FP8 --system h200-hgx --gpus 8 --input 32K --output 1K --ttl 20ms",
        'len(shardline.plan("nvidia/Llama-3.1-70B-Instruct-FP8", system="h200-hgx", gpus=8, input="32K", '
        'output="1K", ttl="20 ms").plans.columns["point.plan"])',
    ),
    "sweep": ("sweep helix_gb200_1m", 'len(shardline.sweep("helix_gb200_1m").frontier["plan"])'),
    "simulate": (
        "simulate helix_gb200_1m --model llama-3.1-405b --plan helix:kvp=8,tpa=8,tpf=64,batch=4",
        'shardline.simulate("helix_gb200_1m", model="llama-3.1-405b", plan="helix:kvp=8,tpa=8,tpf=64,batch=4")'
        ".outcome",
    ),
}


def used():
    """Wall-clock and CPU seconds of this process's children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter(), children.ru_utime + children.ru_stime


def seconds(command):
    """Both of a whole process, and what it printed."""
    began = used()
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(f"{' '.join(command[:2])} failed:\n{ran.stderr}")
    return [end - begin for begin, end in zip(began, used())], ran.stdout


def measure(program, name, runs):
    line, call = QUESTIONS[name]
    taken = []
    for run in range(runs + 1):
        commands = {"program": [program, *line.split()], "python": [sys.executable, "-c", CALL.format(call)]}
        ran = {name: seconds(commands[name]) for name in sorted(commands, reverse=run % 2 == 0)}
        alone, (whole, text) = ran["program"][0], ran["python"]
        if run > 0:  # the first reads files from disk
            taken.append((alone, [float(word) for word in text.split()], whole))
    print(f"{name}, {runs} runs of each in turn")
    for kind, clock in enumerate(("wall-clock", "CPU")):
        for column, what in enumerate(("program", "call", "interpreter")):
            median = statistics.median(row[column][kind] for row in taken)
            over = sorted(100 * (row[column][kind] / row[0][kind] - 1) for row in taken)
            print(
                f"  {clock:10} {what:11} {median:.3f} s; over the program {statistics.median(over):+.1f} %, "
                f"quartiles {over[len(over) // 4]:+.1f} and {over[3 * len(over) // 4]:+.1f} %"
            )


def main():
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 15
    for name in sys.argv[3:] or QUESTIONS:
        measure(sys.argv[1], name, runs)


main()
