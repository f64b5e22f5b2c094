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
        beside = [f for f in os.listdir(".") if f not in ("s.yaml", "x")]  # x: out/../x, as the user said
        if beside or os.path.exists(os.path.join(tempfile.gettempdir(), "shardline-hostile")):
            faults.append(f"written outside of the folder: {beside}")
    print(f"{runs} runs, {fine} of them with an answer")
    for fault in faults:
        print("FAILED:", fault)
    return 1 if faults or fine < 10 else 0


if __name__ == "__main__":
    sys.exit(main())
