"""The same question gives the same bits: over numbers of threads, locales with a decimal comma, time zones and working
directories: `determinism.py BINARY`. With a second program, of another compiler, the files of both are compared, and
nothing else: `determinism.py BINARY OTHER`. What may differ is the recorded command line and the version's date."""
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile

BINARIES = [os.path.abspath(path) for path in sys.argv[1:]]
GOLDEN = os.path.dirname(os.path.abspath(__file__))
QUESTIONS = [
    ["sweep", "small.yaml", "--all"],
    ["sweep", "prefill.yaml", "--all"],
    ["sweep", "served.yaml"],
    ["simulate", "small.yaml", "--model", "deepseek-r1", "--plan", "helix:kvp=2,tpa=4,tpf=8,batch=4,value_up=after"],
    ["thresholds", "rings.yaml"],
    ["partition", "parts.yaml"],
    ["conversation", "talk.yaml"],
    ["serve", "served.yaml", "--plan", "tensor:tpa=4,tpf=4,batch=1", "--rate", "2/s", "--requests", "400", "--lengths", "drawn"],
    ["serve", "served.yaml", "--plan", "tensor:tpa=4,tpf=4,batch=1", "--users", "8", "--think", "3 s", "--requests", "200"],
]


def comma_locales(folder):
    """Two locales with a decimal comma, compiled here where the system has none."""
    there = subprocess.run(["locale", "-a"], capture_output=True, text=True).stdout.split()
    names = []
    for name in ("de_DE", "fr_FR"):
        if f"{name}.utf8" in there:
            names.append((f"{name}.utf8", {}))
            continue
        made = os.path.join(folder, "locales", f"{name}.UTF-8")
        os.makedirs(os.path.dirname(made), exist_ok=True)
        try:
            subprocess.run(["localedef", "-i", name, "-f", "UTF-8", made], capture_output=True, check=False)
        except FileNotFoundError:
            pass
        if os.path.isdir(made):
            names.append((f"{name}.UTF-8", {"LOCPATH": os.path.dirname(made)}))
    return names


def hashes(folder, command):
    """Of all files below the folder, without the command line and the hashes of files that hold it."""
    out = {}
    for place, _, files in sorted(os.walk(folder)):
        for name in files:
            path = os.path.join(place, name)
            data = open(path, "rb").read()
            if name == "manifest.json":
                data = b"".join(re.findall(rb'"name": "[^"]*"', data))
            elif name.endswith((".png",)):
                continue  # the words of a picture are drawn: its SVG is compared
            else:
                text = data.decode(errors="surrogateescape").replace("</span><wbr><span>", "")  # a page's command may break
                text = re.sub(r"shardline (?:\S+: shardline )?%s [^\"\n<]*" % command, "COMMAND", text)
                text = re.sub(r" --threads \d+", "", text)
                data = text.encode(errors="surrogateescape")
            out[os.path.relpath(path, folder)] = hashlib.sha256(data).hexdigest()
    return out


def answer(binary, question, work, threads=None, environment=None, elsewhere=False):
    out = os.path.join(work, "out")
    shutil.rmtree(out, ignore_errors=True)
    place = os.path.join(work, "another place") if elsewhere else GOLDEN
    if elsewhere:
        shutil.copytree(GOLDEN, place, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.txt"))
    more = ["--threads", str(threads)] if threads and question[0] not in ("simulate", "conversation", "serve") else []
    ran = subprocess.run([binary, *question, *more, "-o", out], cwd=place, stdin=subprocess.DEVNULL, capture_output=True,
                         text=True, env={**os.environ, **(environment or {})})
    if ran.returncode not in (0, 3):
        print(f"FAILED: {question}: exit {ran.returncode}: {ran.stderr}")
        sys.exit(1)
    return {**hashes(out, question[0]), "standard output": hashlib.sha256(ran.stdout.encode()).hexdigest()}


def main():
    with tempfile.TemporaryDirectory() as work:
        variants = [(f"{n} threads", {"threads": n}) for n in (2, 8)]
        locales = [] if BINARIES[1:] else comma_locales(work)
        if len(locales) < 2 and not BINARIES[1:]:
            print(f"skipped: {2 - len(locales)} of two locales with a decimal comma (none is installed or can be made)")
        variants += [(f"locale {name}", {"threads": 1, "environment": {"LC_ALL": name, **more}}) for name, more in locales]
        variants += [(f"time zone {zone}", {"threads": 1, "environment": {"TZ": zone}})
                     for zone in ("Pacific/Kiritimati", "America/St_Johns")]
        variants.append(("another working directory", {"threads": 1, "elsewhere": True}))
        faults = 0
        for question in QUESTIONS:
            first = answer(BINARIES[0], question, work, threads=1)
            compared = [] if BINARIES[1:] else [(name, answer(BINARIES[0], question, work, **how)) for name, how in variants]
            compared += [(binary, answer(binary, question, work, threads=1)) for binary in BINARIES[1:]]
            for name, other in compared:
                differ = sorted(f for f in first.keys() | other.keys() if first.get(f) != other.get(f))
                if differ:
                    faults += 1
                    print(f"FAILED: {' '.join(question)}: {name} changes {', '.join(differ)}")
            print(f"  {' '.join(question)}: {len(first) - 1} files, {len(compared)} ways", flush=True)
        return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
