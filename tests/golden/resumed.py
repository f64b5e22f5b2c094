"""A sweep that was killed goes on where it was, and leaves the same bits as one that was not.
Usage: resumed.py BINARY"""
import filecmp
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

BINARY = os.path.abspath(sys.argv[1])
COMMAND = ["sweep", "prefill_405b_gb200_1m", "--exhaustive", "--all", "--threads", "2", "-o", "out"]


def fail(text):
    print("FAILED:", text)
    sys.exit(1)


def run(**more):
    return subprocess.run([BINARY, *COMMAND], stdin=subprocess.DEVNULL, capture_output=True, text=True, **more)


def journals():
    return sorted(f for folder, _, files in os.walk("out") for f in files if f.endswith(".journal"))


def start(**more):
    return subprocess.Popen([BINARY, *COMMAND], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, text=True, **more)


def without_journal(seconds):
    """Where a journal cannot be written, none is promised. A sweep that takes so many seconds has one after the first."""
    process = start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64)))
    time.sleep((1 + seconds) / 2)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate()
    if process.returncode != 143 or "goes on" in said or os.path.exists("out"):
        fail(f"exit {process.returncode} without a journal: {said}")


def on_a_full_disk(largest):
    """Its largest file cannot be written: what was searched is kept, and it is said how to go on."""
    limit = (largest - 1, largest - 1)
    full = run(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
    said = full.stderr
    if full.returncode != 2 or "cannot write" not in said or "the same command goes on where it was" not in said:
        fail(f"exit {full.returncode} on a full disk: {said}")
    if not journals():
        fail("a full disk left no journal")
    resumed = run()
    if resumed.returncode != 0 or "went on behind" not in resumed.stderr or "goes on" in resumed.stderr:
        fail(f"not resumed after a full disk: exit {resumed.returncode}: {resumed.stderr}")
    same("out", "whole")
    shutil.rmtree("out")


def journal_cut():
    """A disk that is full in the middle of the journal: that is said, no more is promised, what is whole is used. What it
    has after its first second depends on the machine."""
    for most in (3_000, 5_000, 8_000, 12_000, 18_000, 27_000, 40_000):
        cut = run(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)))
        if "cannot be written any further" in cut.stderr:
            break
    if "cannot be written any further" not in cut.stderr or "goes on where it was" in cut.stderr or not journals():
        fail(f"exit {cut.returncode} with half a journal: {cut.stderr}")
    resumed = run()
    if resumed.returncode != 0 or "went on behind" not in resumed.stderr:
        fail(f"not resumed behind half a journal: exit {resumed.returncode}: {resumed.stderr}")
    same("out", "whole")
    shutil.rmtree("out")


def kill(number, delay):
    """Ends it once it has a journal and has run `delay` longer."""
    process = start()
    while process.poll() is None and not journals():
        time.sleep(0.01)
    time.sleep(delay)
    process.send_signal(number)
    _, said = process.communicate()
    if process.returncode >= 0 and number == signal.SIGKILL:
        fail(f"the sweep ended before it was killed: {process.returncode}")
    return process.returncode, said


def another_question():
    """Other flags lose what was kept: that is said first, and nothing is lost yet within a second."""
    at = os.path.join("out", journals()[0])
    kept = open(at, "rb").read()
    other = subprocess.Popen([BINARY, *COMMAND, "--ttft", "60 s"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, text=True)
    said = ""
    while "of an interrupted sweep with another command" not in said:
        line = other.stderr.readline()
        if not line:
            fail(f"another command says nothing of the journal: {said}")
        said += line
    other.send_signal(signal.SIGKILL)
    other.communicate()
    if open(at, "rb").read() != kept:
        fail("another command wrote over the journal at once")


def without_line(path, pattern):
    return re.sub(pattern, "", open(path, errors="surrogateescape").read())


def same(one, other):
    compared = filecmp.dircmp(one, other)
    if compared.left_only or compared.right_only:
        fail(f"files differ: {compared.left_only} {compared.right_only}")
    for folder, _, files in os.walk(one):
        for name in files:
            a = os.path.join(folder, name)
            b = os.path.join(other, os.path.relpath(a, one))
            if not filecmp.cmp(a, b, shallow=False):
                fail(f"{a} and {b} differ")


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        begin = time.monotonic()
        whole = run()
        seconds = time.monotonic() - begin
        if whole.returncode != 0 or journals():
            fail(f"exit {whole.returncode}, {journals()}: {whole.stderr}")
        shutil.move("out", "whole")

        without_journal(seconds)
        on_a_full_disk(max(os.path.getsize(os.path.join(f, n)) for f, _, files in os.walk("whole") for n in files))
        journal_cut()
        kill(signal.SIGKILL, 0.3)
        if not journals():
            fail("kill -9 left no journal")
        journal = os.path.join("out", journals()[0])
        with open(journal, "ab") as file:  # as a write that was cut
            file.write(b"0" * 64 + b" 1 2 3")
        # Ended while it still reads the journal it says nothing of it, and leaves it as it is.
        for delay in (0.3, 1, 3):
            code, said = kill(signal.SIGTERM, delay)
            if "nothing was written" not in said or not journals():
                break
        if code != 143 or "the same command goes on where it was" not in said:
            fail(f"exit {code} after SIGTERM: {said}")
        another_question()
        resumed = run()
        if resumed.returncode != 0 or "went on behind" not in resumed.stderr:
            fail(f"not resumed: exit {resumed.returncode}: {resumed.stderr}")
        if resumed.stdout != whole.stdout:
            fail("what is printed differs")
        if journals():
            fail(f"left behind: {journals()}")
        same("out", "whole")

        # Another question does not take the journal of this one.
        kill(signal.SIGKILL, 0.3)
        COMMAND.remove("--all")
        other = run()
        if other.returncode != 0 or "went on behind" in other.stderr:
            fail(f"another question was resumed: {other.stderr}")
    print("a sweep that was killed went on")


if __name__ == "__main__":
    main()
