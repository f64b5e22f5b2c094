"""Every command keeps to a terminal of 80 columns, its tables, notes and errors: only one word that is longer, such as a
plan's text, may stand out, for a broken word cannot be copied. Nothing that a command says in a pipe is lost: tables may
leave out columns, which they name. Usage: narrow.py BINARY"""
import os
import re
import subprocess
import sys
import tempfile

BINARY = os.path.abspath(sys.argv[1])
HERE = os.path.dirname(os.path.abspath(__file__))
COLUMNS = 80
HALF = 40  # of a terminal that is split
SCREEN = 42  # lines of an answer of plan
LINE = ["--system", "h100-hgx", "--gpus", "4", "--input", "8K", "--output", "512"]
HELIX = "helix:kvp=2,tpa=4,tpf=8,batch=4"
LAST = "tensor:tpa=4,tpf=4,batch=16"


def questions():
    """A command may have several."""
    cases = {f"list {what}": ["list", what] for what in ("models", "systems", "strategies", "options", "scenarios", "acceptance")}
    cases["plan"] = ["plan", "llama-3.1-8b", *LINE, "--ttl", "20 ms", "--gpu-hour", "2.5"]
    cases["plan of a rate"] = ["plan", "llama-3.1-8b", *LINE, "--rate", "5/s"]
    cases["plan of targets"] = ["plan", "llama-3.1-8b", *LINE, "--rate", "5/s", "--requests", "300", "--slo", "ttft p90 1 s, tpot p90 12 ms", "-v"]
    cases["plan of a prefill"] = ["plan", "llama-3.1-8b", *LINE[:-2], "--ttft", "1 ms"]
    cases["serve"] = ["serve", "llama-3.1-8b", *LINE, "--rate", "2/s", "--requests", "200", "--slo", "tpot p99 1 ms"]
    cases["sweep"] = ["sweep", "small.yaml", "--ttl", "30 ms", "-v", "-o", "w/small"]
    cases["sweep that is served"] = ["sweep", "served.yaml", "--ttl", "20 ms", "-v", "-o", "w/served"]
    cases["sweep of a prefill"] = ["sweep", "prefill.yaml", "--ttft", "1 ms", "-v", "-o", "w/prefill"]
    cases["sweep with approximate plans"] = ["sweep", "approximate.yaml", "-v"]
    cases["sweep of all"] = ["sweep", "helix_gb200_1m", "--ttl", "20 ms", "-v"]
    cases["simulate"] = ["simulate", "served.yaml", "--plan", LAST, "-o", "w/plan"]
    cases["simulate for three engines"] = ["simulate", "launch.yaml", "--plan", "dp_ep:dp=8,ep=8,batch=16"]
    cases["simulate a chain"] = ["simulate", "kvr_llama7b_a100", "--plan", "kv_runahead:cp=4"]
    cases["explain"] = ["explain", "small.yaml", "--model", "llama-3.1-405b", "--plan", HELIX]
    cases["compare"] = ["compare", "served.yaml", "--plan", LAST, "--plan", "tensor:tpa=8,tpf=8,batch=16"]
    cases["handoff"] = ["handoff", "served.yaml", "--prefill", "tensor:tpa=2,tpf=2,batch=1", "--decode", LAST]
    cases["thresholds"] = ["thresholds", "rings.yaml", "-o", "w/rings"]
    cases["partition"] = ["partition", "parts.yaml", "-o", "w/parts"]
    cases["partition of experts"] = ["partition", "partition_llama7b_a100"]
    cases["conversation"] = ["conversation", "talk.yaml", "-o", "w/talk"]
    cases["verify"] = ["verify", "apb", "--mutations"]
    cases["calibrate"] = ["calibrate", "gemm.csv", "--system", "h100-hgx", "-o", "w/mine.yaml"]
    cases["evaluate"] = ["evaluate", "gemm.csv", "--system", "h100-hgx", "--csv", "w/rows.csv"]
    cases["accuracy"] = ["accuracy"]
    cases["validate"] = ["validate", "all", "-o", "w/validation"]
    for paper in ("context_parallel", "kv_runahead", "apb", "helix"):
        cases[f"validate {paper}"] = ["validate", paper]
    cases["an unknown key"] = ["sweep", "small.yaml", "--set", "device.memory.bandwith=4 TB/s"]
    for command in commands():
        cases[f"{command} --help"] = [command, "--help"]
    return cases


def commands():
    text = subprocess.run([BINARY, "--help"], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^  ([a-z]+)  +\S", text.split("Subcommands:")[1].split("Example:")[0], re.M)


def said(arguments, columns):
    environment = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
    if columns:
        environment["COLUMNS"] = str(columns)
    ran = subprocess.run([BINARY, *arguments], capture_output=True, text=True, env=environment)
    return ran.returncode, ran.stdout, ran.stderr


def wider(text, columns=COLUMNS):
    """Lines of several words that are wider, but for a command in a document, which stays in one line."""
    lines = [line for line in text.splitlines() if len(line) > columns and len(line.split()) > 1]
    return [line for line in lines if not line.startswith("shardline ")]


def words(text):
    return set(re.findall(r"[A-Za-z]{4,}", text))


def files_of(arguments):
    """Texts of the folder that the command writes, which are the same whatever it is run in."""
    out = {}
    folder = arguments[arguments.index("-o") + 1] if "-o" in arguments else ""
    for path, _, names in os.walk(folder):
        for name in names:
            if name.endswith((".csv", ".html", ".json", ".md", ".txt", ".sh", ".hpp")) and name != "run.json":
                with open(os.path.join(path, name), encoding="utf-8") as text:
                    out[os.path.join(path, name)] = text.read()
    return {file: text for file, text in out.items() if not file.endswith("manifest.json")}  # hashes of run.json


def faults(name, arguments):
    code, wide, wide_errors = said(arguments, None)
    files = files_of(arguments)
    narrow_code, narrow, errors = said(arguments, COLUMNS)
    out = [f"{name}: {len(line)} columns: {line}" for line in wider(narrow) + wider(errors)]
    if code != narrow_code or not wide + wide_errors:
        out.append(f"{name}: exit {code} in a pipe, {narrow_code} at {COLUMNS} columns\n{errors}")
    if "--help" in arguments:
        half = said(arguments, HALF)[1]
        out += [f"{name}: {len(line)} columns of {HALF}: {line}" for line in wider(half, HALF)]
        lost = words(wide) - words(half)
        if lost:
            out.append(f"{name}: not said at {HALF} columns: {', '.join(sorted(lost))}")
    if arguments[0] == "plan" and "--help" not in arguments and narrow.count("\n") > SCREEN:
        out.append(f"{name}: {narrow.count(chr(10))} lines, more than a screen")
    narrow_files = files_of(arguments)
    out += [f"{name}: {file} depends on the width" for file in files if files[file] != narrow_files.get(file)]
    if "left out, for" not in narrow:
        lost = words(wide) - words(narrow)
        if lost:
            out.append(f"{name}: not said at {COLUMNS} columns: {', '.join(sorted(lost))}")
    return out


def write_gemm(file):
    """Products of BF16 matrices, their times invented."""
    with open(file, "w", encoding="utf-8") as out:
        out.write("m,n,k,dtype,kernel,latency_us\n")
        for m in (2**i for i in range(13)):
            for n in (1024, 2048, 4096, 8192, 16384):
                for k in (1024, 4096):
                    out.write(f"{m},{n},{k},bf16,torch_flow,{4 + 1e-9 * n * k * (0.5 + 0.003 * m)}\n")


def main():
    if wider("a" * 81 + "\n" + "a b" * 20) or not wider("a " * 41 + "b"):
        sys.exit("narrow.py does not know a wide line")
    cases = questions()
    missing = set(commands()) - {arguments[0] for name, arguments in cases.items() if "--help" not in name}
    wrong = [f"{command}: not tried" for command in sorted(missing)]
    with tempfile.TemporaryDirectory() as folder:
        for name in os.listdir(HERE):
            if name.endswith(".yaml"):
                os.symlink(os.path.join(HERE, name), os.path.join(folder, name))
        os.chdir(folder)
        os.mkdir("w")
        write_gemm("gemm.csv")
        for name, arguments in cases.items():
            found = faults(name, arguments)
            print("\n".join(found) if found else f"{name}: fine", flush=True)
            wrong += found
        os.chdir(HERE)
    print(f"{len(wrong)} faults" if wrong else f"{len(cases)} questions keep to {COLUMNS} columns")
    sys.exit(1 if wrong else 0)


main()
