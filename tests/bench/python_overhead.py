#!/usr/bin/env python3
"""How much longer a sweep takes in Python than by the program, taken in turn.

Usage: PYTHONPATH=BUILD/python python_overhead.py PROGRAM [SCENARIO [RUNS]]
Prints medians of wall-clock and of CPU seconds, which other work on the machine disturbs less: of the
program as a whole; of the first call in a new interpreter with the columns of its frontier; and of that
interpreter as a whole, which also starts and imports numpy and shardline.
"""

import resource
import statistics
import subprocess
import sys
import time

CALL = """
import time, numpy, shardline
began, cpu = time.perf_counter(), time.process_time()
len(shardline.sweep({!r}).frontier["plan"])
print(time.perf_counter() - began, time.process_time() - cpu)
"""


def used():
    """Wall-clock and CPU seconds of this process's children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter(), children.ru_utime + children.ru_stime


def seconds(command):
    """Both of a whole process, and what it printed."""
    began = used()
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    return [end - begin for begin, end in zip(began, used())], ran.stdout


def main():
    program = sys.argv[1]
    scenario = sys.argv[2] if len(sys.argv) > 2 else "helix_gb200_1m"
    runs = int(sys.argv[3]) if len(sys.argv) > 3 else 15
    taken = []
    for run in range(runs + 1):
        alone, _ = seconds([program, "sweep", scenario])
        whole, text = seconds([sys.executable, "-c", CALL.format(scenario)])
        if run > 0:  # the first reads files from disk
            taken.append((alone, [float(word) for word in text.split()], whole))
    print(f"{scenario}, {runs} runs of each in turn")
    for kind, clock in enumerate(("wall-clock", "CPU")):
        for column, name in enumerate(("program", "call", "interpreter")):
            median = statistics.median(row[column][kind] for row in taken)
            over = sorted(100 * (row[column][kind] / row[0][kind] - 1) for row in taken)
            print(
                f"  {clock:10} {name:11} {median:.3f} s; over the program {statistics.median(over):+.1f} %, "
                f"quartiles {over[len(over) // 4]:+.1f} and {over[3 * len(over) // 4]:+.1f} %"
            )


main()
