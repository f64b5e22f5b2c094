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


def follow_plan(saved):
    """Commands that are broken over lines of 80 columns."""
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
    targets = re.search("^# Not in it, to be given to sweep, .*:( --.*)$", text, re.MULTILINE).group(1)
    beside = targets + re.search("^# Not in it, to be given to commands that read it:(.*)$", text, re.MULTILINE).group(1)
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


def follow_whole_paths():
    """A question asked with relative paths of everything that a path can name: its file is read from any other folder, for it
    holds whole ones; so does the text that --json has."""
    os.makedirs("there/systems")
    os.makedirs("away")
    shutil.copy(f"{GOLDEN}/../models/hf/llama-3.1-8b.json", "there/its own.json")
    shutil.copy(f"{GOLDEN}/../../hardware/catalog/h100-hgx.yaml", "there/systems/mine.yaml")
    calibration = re.search("^calibration: (.*)$", open("there/systems/mine.yaml").read(), re.MULTILINE).group(1)
    text = open("there/systems/mine.yaml").read()
    shutil.copy(f"{GOLDEN}/../../hardware/calibrations/{calibration}.yaml", "there/fits.yaml")
    open("there/systems/mine.yaml", "w").write(text.replace(f"calibration: {calibration}", "calibration: ../fits.yaml"))
    line = ["plan", "./its own.json", "--system", "systems/mine.yaml", "--gpus", "2", "--input", "2K", "--output", "64",
            "--engine", "ideal", "--set", "calibration=fits.yaml"]
    answers = [subprocess.run([BINARY, *line, *more], cwd="there", capture_output=True, text=True, stdin=subprocess.DEVNULL)
               for more in (["--save", "../away/q.yaml"], ["--save", "-"], ["--json"])]
    for said in answers:
        if said.returncode != 0:
            fail(said.stderr)
    document = json.loads(answers[2].stdout)
    saved = open("away/q.yaml").read()
    if not saved == answers[1].stdout == document["scenario_text"]:
        fail(f"three files of one question: {saved}\n{answers[1].stdout}\n{document['scenario_text']}")
    there = os.path.realpath("there")
    for path in (f"{there}/its own.json", f"{there}/systems/mine.yaml"):
        if path not in saved:
            fail(f"no {path} in {saved}")
    plan = document["plans"][0]["point"]
    beside = re.search("^# Not in it, to be given to commands that read it:(.*)$", saved, re.MULTILINE).group(1)
    if f"{there}/fits.yaml" not in beside:
        fail(f"no whole path of the calibration: {beside}")
    ran = subprocess.run(["sh", "-c", f"{BINARY} simulate q.yaml --plan {plan['plan']} --json{beside}"], cwd="away",
                         capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if ran.returncode != 0:
        fail(ran.stderr)
    found = json.loads(ran.stdout)["outcome"]
    if found["ttl_s"] is None or found["ttl_s"] != plan["ttl_s"]:
        fail(f"another answer from another folder: {found} for {plan}")


def measured(command, document):
    """Users of one copy, TPOT and TTFT of a document, in the place where the command has them."""
    if command == "sweep":
        points = [p["point"] for p in document["models"][0]["meeting"]]
        return [(p["requests"], p["tpot_s"]["value"], p["ttft_s"]["value"]) for p in points]
    served = document["served"] if command != "compare" else document["plans"][0]["served"]
    return [(served["users"], served["tpot_s"]["value"], served["ttft_s"]["value"])]


def follow_waiting():
    """Where memory does not hold all users, all of them are asked for by the commands that plan names next, and by explain and
    compare of the line itself: with the same numbers."""
    large = ["llama-3.1-70b", "--system", "h200-hgx", "--gpus", "8", "--input", "32K", "--output", "1K", "--users", "128"]
    small = ["llama-3.1-8b", "--system", "h100-hgx", "--gpus", "2", "--input", "8K", "--output", "256", "--users", "400"]
    capped = [*large, "--engine", "vllm", "--ttl", "1 s"]
    for line, waits in ((large, True), (small, True), (capped, False)):
        said, first = (subprocess.run([BINARY, "plan", *line, "--save", "waits.yaml", *more], capture_output=True, text=True,
                                      stdin=subprocess.DEVNULL) for more in ([], ["--json"]))
        if said.returncode != 0 or first.returncode != 0:
            fail(said.stderr + first.stderr)
        plan = json.loads(first.stdout)["plans"][0]
        best = plan["point"]
        if best["waiting"] == 0 and waits:
            fail(f"nobody waits in {line}")
        asked = (best["requests"], best["tpot_s"]["value"], best["ttft_s"]["value"])
        text = said.stdout[said.stdout.index("\nnext"):]
        named = {c.split()[1]: c for c in re.findall(r"^  (shardline (?:.*\\\n)*.*)$", text, re.MULTILINE)}
        if set(named) != {"simulate", "explain"} | ({"sweep"} if plan["copies"]["count"] == 1 else set()):
            fail(f"commands of plan: {text}")
        more = {f"{c} of the line": f"shardline {c} " + " ".join(f"'{a}'" for a in line) for c in ("explain", "compare")}
        for name, command in {**named, **more}.items():
            shell(command.replace(" -o out", "") + " --json > answer.json")
            found = measured(name.split()[0], json.load(open("answer.json")))
            if not any(users == asked[0] and all(abs(a / b - 1) < 1e-9 for a, b in zip(times, asked[1:]))
                       for users, *times in found):
                fail(f"{command}: {found} for {asked} of plan")
        text = subprocess.run([BINARY, "explain", *line], capture_output=True, text=True).stdout
        if best["waiting"] > 0 and (f"{best['waiting']} of whom wait" not in " ".join(text.split())
                                    or "best of" in text and "users who run" not in text):
            fail(f"explain does not say who waits: {text}")


def follow_waiting_winners():
    """Commands of a sweep's winners, in run.json and on its page, for users of whom some wait."""
    line = ["plan", "llama-3.1-70b", "--system", "h200-hgx", "--gpus", "8", "--input", "32K", "--output", "1K", "--users", "128"]
    for command in ([*line, "--save", "waits.yaml"], ["sweep", "waits.yaml", "--users", "128", "-o", "swept"]):
        ran = subprocess.run([BINARY, *command], capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if ran.returncode != 0:
            fail(ran.stderr)
    winners = json.load(open("swept/llama-3.1-70b/run.json"))["winners"]
    page = open("swept/llama-3.1-70b/frontier.html").read()
    if not winners or any(w["point"]["waiting"] == 0 for w in winners):
        fail(f"winners without waiting users: {winners}")
    for w in winners:
        shell(w["simulate"] + " --json > answer.json")
        point, found = w["point"], json.load(open("answer.json"))["served"]
        if found["users"] != point["requests"] or abs(found["ttft_s"]["value"] / point["ttft_s"]["value"] - 1) > 1e-9:
            fail(f"{w['simulate']}: {found} for {point}")
        if json.dumps(w["simulate"]) not in page:
            fail(f"the page has another command than {w['simulate']}")


def follow_served():
    """serve_command of a document plays what was found, as a shell reads it, from another folder than the trace's."""
    saved = "it's $HOME; `touch ran`.yaml"
    os.makedirs("asked here")
    rows = "".join(f"{0.25 * i},{1500 + i},{20}\n" for i in range(60))
    open("asked here/my requests.csv", "w").write("arrival_s,input_tokens,output_tokens\n" + rows)
    line = ["plan", "llama-3.1-8b", "--system", "h100-hgx", "--gpus", "2", "--input", "2K", "--output", "32", "--engine", "vllm",
            "--any-gpus", "--slo", "ttft p99 2 s, tpot p99 100 ms", "--requests", "100", "--knob", "max_num_seqs=64,128", "--json", "--save", saved]
    for load in (["--rate", "4/s", "--seed", "3", "--lengths", "drawn"], ["--trace", "my requests.csv"]):
        said = subprocess.run([BINARY, *line, *load], cwd="asked here", capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if said.returncode != 0:
            fail(said.stderr)
        found = json.loads(said.stdout)["deployment"]["cheapest"][0]
        if not found["met"]:
            fail(f"not met: {found}")
        os.chdir("asked here")
        shell(found["serve_command"])
        shell(found["serve_command"] + " --json > played.json")
        played = json.load(open("played.json"))
        os.chdir("..")
        if played["latencies"] != found["latencies"] or os.path.exists("ran") or os.path.exists("asked here/ran"):
            fail(f"{found['serve_command']} plays another load: {played['latencies']} for {found['latencies']}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        scenario, out = "it's small $HOME.yaml", "out put/`x`; 'y' \"z\""
        shutil.copy(f"{GOLDEN}/small.yaml", scenario)
        follow_plan("it's a; $HOME `touch ran` 'b' \"c\" and so on.yaml")  # all that a shell obeys
        follow_plan("-rf and so on, a name that is as long as half a line.yaml")  # no option
        follow_saved()
        follow_whole_paths()
        follow_waiting()
        follow_waiting_winners()
        follow_served()
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
