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


def follow_saved():
    """A saved file is read from another folder, without the settings of the question: what it has no keys for stands in it."""
    os.makedirs("asked/models")
    os.makedirs("elsewhere")
    shutil.copy(f"{GOLDEN}/../models/hf/llama-3.1-8b.json", "asked/models/config.json")
    settings = ["strategies=[pipeline]", "gpus=[2, 4]", "constraints.pool_gpus=2", "device.memory.bandwidth=3 TB/s"]
    line = ["plan", "models", "--system", "h100-hgx", "--gpus", "4", "--input", "2K", "--output", "64", "--ttl", "1 s"]
    for setting in settings:
        line += ["--set", setting]
    said = subprocess.run([BINARY, *line, "--save", "../elsewhere/q.yaml"], cwd="asked", capture_output=True, text=True,
                          stdin=subprocess.DEVNULL)
    if said.returncode != 0:
        fail(said.stderr)
    os.chdir("elsewhere")
    text = open("q.yaml").read()
    beside = re.search("^# Not in it, to be given to commands that read it:(.*)$", text, re.MULTILINE).group(1)
    if " --ttl " not in beside or "device.memory.bandwidth" not in beside or "strategies" in beside:
        fail(f"beside the saved file: {beside}")
    if beside.split()[0] not in said.stdout or "not in ../elsewhere/q.yaml" not in said.stdout:
        fail(f"the answer does not say what is not in the file: {said.stdout}")
    swept = subprocess.run(["sh", "-c", f"{BINARY} sweep q.yaml --json{beside}"], capture_output=True, text=True,
                           stdin=subprocess.DEVNULL)
    planned = subprocess.run([BINARY, *line, "--json"], cwd="../asked", capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if swept.returncode != 0 or planned.returncode != 0:
        fail(swept.stderr + planned.stderr)
    def measures(points):
        return [(p["plan"], p["tpot_s"]["value"], p["ttft_s"]["value"]) for p in (m["point"] for m in points)]
    again = measures(json.loads(swept.stdout)["models"][0]["meeting"])
    first = measures(p for p in json.loads(planned.stdout)["plans"] if p["meets"])
    if not first or again != first:
        fail(f"the saved file asks another question: {again} for {first}\n{text}")
    os.chdir("..")


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        scenario, out = "it's small $HOME.yaml", "out put/`x`; 'y' \"z\""
        shutil.copy(f"{GOLDEN}/small.yaml", scenario)
        follow_plan()
        follow_saved()
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
