"""Command lines that files carry are run again by a shell as they stand: that of run.json writes the same files, and those
of its winners simulate them. Usage: replayed.py BINARY"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

BINARY = os.path.abspath(sys.argv[1])
GOLDEN = os.path.dirname(os.path.abspath(__file__))


def fail(text):
    print("FAILED:", text)
    sys.exit(1)


def shell(command):
    path = os.path.dirname(BINARY) + ":" + os.environ["PATH"]
    ran = subprocess.run(["sh", "-c", command], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                         env={**os.environ, "PATH": path})
    if ran.returncode != 0:
        fail(f"exit {ran.returncode} of {command}: {ran.stderr}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        scenario, out = "it's small $HOME.yaml", "out put/`x`; 'y' \"z\""
        shutil.copy(f"{GOLDEN}/small.yaml", scenario)
        first = subprocess.run([BINARY, "sweep", scenario, "-o", out, "--set", "device.memory.bandwidth=7 TB/s"],
                               capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if first.returncode != 0:
            fail(first.stderr)
        models = sorted(os.listdir(out))
        records = {m: json.load(open(os.path.join(out, m, "run.json"))) for m in models}
        texts = {m: open(os.path.join(out, m, "frontier.csv")).read() for m in models}
        shutil.rmtree(out)
        shell(records[models[0]]["command"])
        for m in models:
            if open(os.path.join(out, m, "frontier.csv")).read() != texts[m]:
                fail(f"frontier.csv of {m} is another one")
        commands = [w["simulate"] for r in records.values() for w in r["winners"]]
        if len(commands) < len(models):
            fail("no winners")
        for command in commands:
            shell(command)
    print(f"{1 + len(commands)} commands were run again")


if __name__ == "__main__":
    main()
