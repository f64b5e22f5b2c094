"""Command lines that files and answers carry are run again by a shell as they stand: that of run.json writes the same files,
those of its winners simulate them, and those that plan names next do what they say. Usage: replayed.py BINARY"""
import json
import os
import re
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


def follow_plan():
    """A file whose name has all that a shell obeys, in commands that are broken over lines of 80 columns."""
    saved = "it's a; $HOME `touch ran` 'b' \"c\" and so on.yaml"
    said = subprocess.run([BINARY, "plan", "llama-3.1-8b", "--system", "h100-hgx", "--gpus", "2", "--input", "1K", "--output", "16",
                           "--save", saved], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if said.returncode != 0:
        fail(said.stderr)
    text = said.stdout[said.stdout.index("\nnext"):]
    commands = re.findall(r"^  (shardline (?:.*\\\n)*.*)$", text, re.MULTILINE)
    if len(commands) < 3 or not any("\n" in c for c in commands):
        fail(f"commands of plan: {text}")
    for command in commands:
        shell(command)
    if os.path.exists("ran") or not os.path.exists("out/trace.json"):
        fail(f"not what the commands of plan say: {os.listdir('.')}")
    shutil.rmtree("out")


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        scenario, out = "it's small $HOME.yaml", "out put/`x`; 'y' \"z\""
        shutil.copy(f"{GOLDEN}/small.yaml", scenario)
        follow_plan()
        first = subprocess.run([BINARY, "sweep", scenario, "-o", out, "--set", "device.memory.bandwidth=7 TB/s"],
                               capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if first.returncode != 0:
            fail(first.stderr)
        if "gnuplot failed" in first.stdout:  # the command is a text of the pictures
            fail(first.stdout)
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
