"""Text from files and command lines reaches neither a terminal nor a file raw: each of them holds control characters,
marks that turn the direction of text, quotes or commands, at every place that is a text, and no output has any of the
former, no command of the latter runs. Usage: hostile_text.py BINARY"""
import json
import os
import subprocess
import sys
import tempfile

BINARY = os.path.abspath(sys.argv[1])
TEXTS = ["\x1b[31mX", "a\nb", "a\u202eb", "a\x00b", "a\x9bb", 'a"b', "a'b", "$(touch ran)", "`touch ran`", "a;touch ran",
         "<script>alert(1)</script>", "a\r\nb", "a\u2028b", "n" * 5000, "a\x7fb", "=1+1", "../x", os.path.join(tempfile.gettempdir(), "shardline-hostile", "x"), "-o", "%s%n"]
SCENARIO = """name: {name}
summary: {summary}
phase: decode
models: [{model}]
system: h200-hgx
context: 128K tokens
strategies: [tensor]
gpus: [8]
batch: [1, 2]
"""


def raw(data):
    """Code points that a terminal or a reader of text obeys."""
    try:
        text = data.decode()
    except UnicodeDecodeError as e:
        return [str(e)]
    ranges = [(0, 8), (11, 31), (0x7F, 0x9F), (0x200E, 0x200F), (0x2028, 0x202E), (0x2066, 0x2069), (0xFEFF, 0xFEFF)]
    return sorted({hex(ord(c)) for c in text for low, high in ranges if low <= ord(c) <= high})


def commands(text):
    """The same text in every place that takes one."""
    fields = {"name": '"x"', "summary": '"y"', "model": '"llama-3.1-8b"'}
    for field in fields:
        yield field, SCENARIO.format(**{**fields, field: json.dumps(text)}), ["sweep", "s.yaml", "-o", "out", "--all"]
    plain = SCENARIO.format(**fields)
    yield "key", plain + json.dumps(text) + ": 1\n", ["sweep", "s.yaml"]
    argument = text.replace("\x00", "")
    yield "plan", plain, ["simulate", "s.yaml", f"--plan={argument}"]
    yield "setting", plain, ["sweep", "s.yaml", f"--set={argument}=3"]
    yield "costs", plain, ["sweep", "s.yaml", f"--costs={argument}"]
    yield "command", plain, [argument]
    yield "option", plain, ["sweep", "s.yaml", f"--{argument}"]
    yield "folder", plain, ["sweep", "s.yaml", "--all", f"-oout/{argument[:200]}"]
    yield "file", plain, ["sweep", argument[:200]]


def named_files(text):
    """A model, a system and a table of measurements that say the text wherever they may say one."""
    catalog = os.environ["SHARDLINE_DATA"]
    model = open(f"{catalog}/models/catalog/llama-3.1-8b.yaml").read().split("\n", 2)[2]
    write("m.yaml", f"name: {json.dumps(text)}\nsource: {json.dumps(text)}\n{model}")
    system = open(f"{catalog}/hardware/catalog/h200-hgx.yaml").read().split("\n", 2)[2]
    write("h.yaml", f"name: {json.dumps(text)}\nsummary: {json.dumps(text)}\n{system}")
    word = text.replace("\n", " ").replace("\r", " ").replace(",", " ").encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    write("t.csv", f"# gpu: {word}\n# {word}: {word}\nm,n,k,dtype,kernel,latency_us\n64,128,1024,bf16,{word},5.5\n128,128,1024,bf16,{word},6.5\n")
    write("p.csv", f"m,n,k,dtype,kernel,power_w,power_limit_w,latency_us\n4096,4096,4096,bf16,{word},500,700,300\n4096,4096,4096,{word},x,500,700,300\n")
    loops = "".join(f"h100_sxm,{model},fp8,vllm,{version},{tokens},256,{users},1,1,1,,1,1,{60 + 20 * users},{9 + 0.2 * users},{word},{word}\n"
                    for model, version in (("Qwen/Qwen3-32B", "0.24.0"), ("Qwen/Qwen3-32B", word), (word, "0.24.0"))
                    for tokens in (1024, 2048) for users in (1, 4, 16))
    write("l.csv", "system,model,precision,backend,backend_version,isl_tokens,osl_tokens,concurrency,gpus,tp,pp,attn_dp,moe_tp,moe_ep,ttft_ms,tpot_ms,"
          "measured,source\n" + loops)
    write("u.csv", f"m,n,{word},dtype,kernel,latency_us\n64,128,1024,bf16,nvjet,{word}\n")


def write(name, text):
    with open(name, "w", encoding="utf-8", newline="") as file:
        file.write(text)


# Several at once: a run of every command for each.
TOGETHER = ["\x1b[31mX\x9bb\x7f", "a\u202eb\u2028c\ufeff", "a\r\nb\x00c", "$(touch ran)`touch ran`;touch ran<(touch ran)", '<script>alert(1)</script>"\'', "q'}\"", "../x", "=1+1"]
PLACE = "name: x\nsummary: y\nsystem: ./h.yaml\nmodels: [./m.yaml]\n"
DECODE = "phase: decode\ncontext: 8Ki tokens\nstrategies: [tensor]\ngpus: [8]\nbatch: [1, 2]\n"
PREFILL = "phase: prefill\nrequests: [{new: 8Ki tokens}]\nstrategies: [tensor]\ngpus: [8]\nbatch: 1\n"
TALK = "conversation: {cp: 2, tpa: 4, turns: [{new: 1Ki tokens, output: 10 tokens}]}\n"
RINGS = ("thresholds:\n  cp: [2]\n  tpa: 4\n  new_tokens: {from: 128 tokens, to: 1Ki tokens}\n  longest: 4Ki tokens\n"
         "  new_tokens_per_octave: 1\n  miss_rate_per_octave: 1\n  test_points: 10\n")
PARTS = "partition: {contexts: [4Ki tokens], processes: [2], granularity: 512 tokens, spacing: 4Ki tokens}\n"
SERVED = "engine: vllm\nworkload: {input: 8Ki tokens, output: 256 tokens}\nstrategies: [tensor]\ngpus: [1, 2, 4]\nbatch: [1, 4]\n"
PLAN = "tensor:tpa=8,tpf=8,batch=1"
# Every command that reads a file of a user's, with that file.
WITH_FILES = [
    (DECODE, ["sweep", "s.yaml", "--all", "-o", "out"]), (PREFILL, ["sweep", "s.yaml", "-o", "out"]),
    (DECODE, ["simulate", "s.yaml", "--plan", PLAN, "-o", "out"]), (DECODE, ["explain", "s.yaml", "--plan", PLAN]),
    (DECODE, ["compare", "s.yaml", "--plan", PLAN, "--plan", "tensor:tpa=4,tpf=4,batch=1"]),
    (SERVED, ["sweep", "s.yaml", "-o", "out"]), (DECODE, ["simulate", "s.yaml", "--plan", PLAN, "--engine", "sglang", "-o", "out"]),
    (TALK, ["conversation", "s.yaml", "-o", "out"]), (RINGS, ["thresholds", "s.yaml", "-o", "out"]),
    (PARTS, ["partition", "s.yaml", "-o", "out"]),
    (DECODE, ["plan", "./m.yaml", "--system", "./h.yaml", "--input", "8K", "--output", "1K", "--ttl", "50 ms", "--save", "saved.yaml"]),
    (DECODE, ["list", "models", "./m.yaml"]), (DECODE, ["list", "systems", "./h.yaml"]),
    (DECODE, ["calibrate", "t.csv", "--system", "./h.yaml", "-o", "fitted.yaml", "--csv", "rows.csv"]),
    (DECODE, ["calibrate", "u.csv", "--system", "./h.yaml", "-o", "fitted.yaml"]),
    (DECODE, ["calibrate", "p.csv", "--system", "./h.yaml", "--power", "-o", "fitted.yaml"]),
    (DECODE, ["calibrate", "l.csv", "--engine", "vllm", "-o", "fitted.yaml", "--csv", "rows.csv"]),
    (DECODE, ["plan", "./m.yaml", "--system", "./h.yaml", "--input", "8K", "--output", "1K", "--gpu-hour", "2", "--json"]),
    (DECODE, ["handoff", "s.yaml", "--prefill", "tensor:tpa=4,tpf=4,batch=1", "--decode", "tensor:tpa=4,tpf=4,batch=1"]),
    (DECODE, ["serve", "s.yaml", "--plan", "tensor:tpa=4,tpf=4,batch=1", "--rate", "5/s", "--requests", "50", "--input", "1K", "--output", "4", "-o", "out"]),
    (DECODE, ["evaluate", "t.csv", "--system", "h200-hgx", "--csv", "rows.csv"]),
    (DECODE, ["accuracy", "--measurements", "h200-hgx=tables", "-o", "accuracy.md"]),
    (DECODE, ["validate", "./m.yaml"]), (DECODE, ["verify", "./m.yaml"]),
]
WRITTEN = ("saved.yaml", "fitted.yaml", "rows.csv", "accuracy.md")
MADE = ("m.yaml", "h.yaml", "t.csv", "u.csv", "p.csv", "l.csv", "tables", "s.yaml", "x")


def check_scripts(case, faults):
    """Scripts that start servers, without a model and without an engine: what they say of it is not run."""
    found = 0
    for folder, _, files in os.walk("out"):
        for script in (os.path.join(folder, f) for f in files if f.endswith(".sh")):
            found += 1
            ran = subprocess.run(["bash", script], env={"PATH": "/usr/bin:/bin"}, stdin=subprocess.DEVNULL, capture_output=True,
                                 timeout=60, check=False)
            if ran.returncode == 0 or b"MODEL: a checkpoint of " not in ran.stderr and b": the address of" not in ran.stderr \
                    and b": a source tree of" not in ran.stderr:
                faults.append(f"{case}: {script} ends with {ran.returncode}: {ran.stderr[:200]!r}")
    return found


def check_files(faults):
    """Every command over files that say the texts. Returns how many runs there were, and answers."""
    runs, fine, scripts = 0, 0, 0
    for text in TOGETHER:
        named_files(text)
        os.makedirs("tables", exist_ok=True)
        write("tables/t.csv", open("t.csv", encoding="utf-8", newline="").read())
        for question, arguments in WITH_FILES:
            write("s.yaml", PLACE + question)
            case = f"{text[:20]!r} in files of {arguments[0]} {arguments[1]}"
            ran = subprocess.run([BINARY, *arguments], capture_output=True, timeout=120, check=False)
            runs += 1
            fine += ran.returncode == 0
            if ran.returncode not in (0, 2, 3):
                faults.append(f"{case}: exit {ran.returncode}: {ran.stderr[:200]!r}")
            outputs = [("standard output", ran.stdout), ("standard error", ran.stderr)]
            for folder, _, files in os.walk("out"):
                outputs += [(f, open(os.path.join(folder, f), "rb").read()) for f in files if not f.endswith(".png")]
            outputs += [(f, open(f, "rb").read()) for f in WRITTEN if os.path.exists(f)]
            for name, data in outputs:
                if raw(data):
                    faults.append(f"{case}: {raw(data)} in {name}")
                if name.endswith(".html") and b"<script>alert(1)" in data:
                    faults.append(f"{case}: a script of others in {name}")
            scripts += check_scripts(case, faults)
            subprocess.run(["rm", "-rf", "out", *WRITTEN], check=True)
            if os.path.exists("ran"):
                faults.append(f"{case}: its command ran")
                os.remove("ran")
    if scripts < 20:
        faults.append(f"{scripts} scripts")
    return runs, fine


def main():
    faults, runs, fine = [], 0, 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for text in TEXTS:
            for place, scenario, arguments in commands(text):
                with open("s.yaml", "w") as file:
                    file.write(scenario)
                for more in ([], ["--json"]):
                    ran = subprocess.run([BINARY, *arguments, *more], capture_output=True, timeout=120, check=False)
                    runs += 1
                    fine += ran.returncode == 0
                    case = f"{text[:20]!r} as {place} {' '.join(more)}"
                    if ran.returncode not in (0, 2, 3):
                        faults.append(f"{case}: exit {ran.returncode}: {ran.stderr[:200]!r}")
                    for name, data in (("standard output", ran.stdout), ("standard error", ran.stderr)):
                        if raw(data):
                            faults.append(f"{case}: {raw(data)} in {name}: {data[:100]!r}")
                for place_of_file, _, files in os.walk("out"):
                    for name in files:
                        if name.endswith(".png"):
                            continue
                        with open(os.path.join(place_of_file, name), "rb") as file:
                            data = file.read()
                        if raw(data):
                            faults.append(f"{case}: {raw(data)} in {name}")
                        if name.endswith(".html") and b"<script>alert(1)" in data:
                            faults.append(f"{case}: a script of others in {name}")
                        if name.endswith(".sh"):
                            subprocess.run(["sh", "-n", os.path.join(place_of_file, name)], check=True)
                if os.path.exists("ran"):
                    faults.append(f"{text!r} as {place}: its command ran")
                    os.remove("ran")
                subprocess.run(["rm", "-rf", "out"], check=True)
        more, answers = check_files(faults)
        runs, fine = runs + more, fine + answers
        beside = [f for f in os.listdir(".") if f not in MADE]  # x: out/../x, as the user said
        if beside or os.path.exists(os.path.join(tempfile.gettempdir(), "shardline-hostile")):
            faults.append(f"written outside of the folder: {beside}")
    print(f"{runs} runs, {fine} of them with an answer")
    for fault in faults:
        print("FAILED:", fault)
    return 1 if faults or fine < 10 else 0


if __name__ == "__main__":
    sys.exit(main())
