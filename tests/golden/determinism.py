"""The same question gives the same bits: over numbers of threads, locales with a decimal comma, time zones and working
directories: `determinism.py BINARY`. With a second program, of another compiler, the files of both are compared, and
nothing else: `determinism.py BINARY OTHER`. What may differ is the recorded command line and the version's date."""
import hashlib
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

BINARIES = [os.path.abspath(path) for path in sys.argv[1:]]
GOLDEN = os.path.dirname(os.path.abspath(__file__))
PLANS = ["helix:kvp=4,tpa=4,tpf=16,batch=4", "helix:kvp=2,tpa=8,tpf=16,batch=4"]
QUESTIONS = [
    ["sweep", "small.yaml", "--all"],
    ["sweep", "prefill.yaml", "--all"],
    ["sweep", "served.yaml"],
    ["simulate", "small.yaml", "--model", "deepseek-r1", "--plan", "helix:kvp=2,tpa=4,tpf=8,batch=4,value_up=after"],
    ["thresholds", "rings.yaml"],
    ["partition", "parts.yaml"],
    ["conversation", "talk.yaml"],
    ["plan", "llama-3.1-8b", "--system", "h100-hgx", "--gpus", "4", "--input", "2K", "--output", "128", "--rate", "20/s", "--requests", "400", "--slo", "ttft p90 300 ms, tpot p90 12 ms"],
    ["serve", "served.yaml", "--plan", "tensor:tpa=4,tpf=4,batch=1", "--rate", "2/s", "--requests", "400", "--lengths", "drawn"],
    ["serve", "served.yaml", "--plan", "tensor:tpa=4,tpf=4,batch=1", "--users", "8", "--think", "3 s", "--requests", "200"],
    ["plan", "llama-3.1-8b", "--system", "h100-hgx", "--gpus", "4", "--input", "8K", "--output", "256", "--ttl", "30 ms", "--gpu-hour", "2"],
    ["handoff", "small.yaml", "--model", "llama-3.1-405b", "--tokens", "16K", "--prefill", "tensor:tpa=8,tpf=8,batch=1", "--decode", PLANS[0]],
    ["explain", "llama-3.1-8b", "--system", "h100-hgx", "--gpus", "2", "--input", "1K", "--output", "16", "--plan", "tensor:tpa=2,tpf=2"],
    ["compare", "small.yaml", "--model", "llama-3.1-405b", "--plan", PLANS[0], "--plan", PLANS[1]],
    ["calibrate", "{work}/gemm.csv", "--system", "h200-hgx", "-o", "{out}/fitted.yaml", "--parameters"],
    ["calibrate", "{work}/served.csv", "--engine", "vllm", "-o", "{out}/profile.yaml", "--csv", "{out}/rows.csv"],
    ["evaluate", "{work}/gemm.csv", "--system", "h200-hgx", "--csv", "{out}/rows.csv"],
    ["calibrate", "{work}/gemm_w.csv", "{work}/prefill_w.csv", "{work}/decode_w.csv", "--system", "h200-hgx", "--power", "-o", "{out}/power.yaml"],
    ["plan", "llama-3.1-8b", "--system", "h100-hgx", "--gpus", "2", "--input", "8K", "--output", "256", "--save", "{out}/question.yaml"],
    ["validate", "kv_runahead", "--no-sensitivity"],
    ["accuracy", "--measurements", "h200-hgx={work}/measured", "-o", "{out}/accuracy.md"],
]
ON_SCREEN = {"plan", "handoff", "explain", "compare"}  # have no folder: as JSON
ONE_THREAD = {"simulate", "conversation", "serve", "handoff", "explain", "compare", "evaluate", "accuracy"}


def tables(work):
    """Measurements to fit to: of kernels, and of an engine."""
    rng = random.Random(1)
    shapes = sorted({(rng.randint(1, 64), rng.randint(1, 32), rng.randint(1, 8)) for _ in range(60)})
    rows = "".join(f"{64 * m},{128 * n},{1024 * k},bf16,nvjet,{5 + m * n * k * rng.uniform(0.02, 0.03):.3f}\n" for m, n, k in shapes)
    with open(f"{work}/gemm.csv", "w") as file:
        file.write("m,n,k,dtype,kernel,latency_us\n" + rows)
    os.makedirs(f"{work}/measured", exist_ok=True)
    shutil.copy(f"{work}/gemm.csv", f"{work}/measured/gemm.csv")
    heads = "heads_q,heads_kv,head_dim,window,dtype_compute,dtype_kv,kernel"
    watts = {"gemm": ("m,n,k,dtype,kernel", rows.splitlines()),
             "prefill": (f"batch,seq_q,kv_cached,{heads}", [f"{b},{512 * s},0,64,8,128,0,bf16,bf16,fa3,{20 * b * s * s}" for b in range(1, 9) for s in range(1, 9)]),
             "decode": (f"batch,kv_len,{heads}", [f"{b},{1024 * s},64,8,128,0,bf16,bf16,fa3,{9 + 2 * b * s}" for b in range(1, 9) for s in range(1, 9)])}
    for name, (columns, measured) in watts.items():
        with open(f"{work}/{name}_w.csv", "w") as file:
            file.write(f"{columns},latency_us,power_w,power_limit_w\n" + "".join(f"{row},{rng.randint(300, 690)},700\n" for row in measured))
    head = ("system,model,precision,backend,backend_version,isl_tokens,osl_tokens,concurrency,gpus,tp,pp,attn_dp,moe_tp,moe_ep,"
            "ttft_ms,tpot_ms,measured,source\n")
    loops = "".join(f"h100_sxm,{model},fp8,vllm,0.24.0,{tokens},256,{users},1,1,1,,1,1,{60 + 20 * users},{9 + 0.2 * users},,x.csv\n"
                    for model in ("meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-32B") for tokens in (1024, 2048) for users in (1, 4, 16))
    with open(f"{work}/served.csv", "w") as file:
        file.write(head + loops)


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
    more = ["--threads", str(threads)] if threads and question[0] not in ONE_THREAD else []
    asked = [part.format(out=out, work=work) for part in question]
    if asked != question:
        os.makedirs(out, exist_ok=True)
    elif question[0] in ON_SCREEN:
        more.append("--json")
    else:
        more += ["-o", out]
    ran = subprocess.run([binary, *asked, *more], cwd=place, stdin=subprocess.DEVNULL, capture_output=True,
                         text=True, env={**os.environ, **(environment or {})})
    if ran.returncode not in (0, 3):
        print(f"FAILED: {question}: exit {ran.returncode}: {ran.stderr}")
        sys.exit(1)
    # The recorded command line, and how long the search took.
    shown = re.sub(r'"command": "[^\n]*|(?<="counts": \{)[^{}]*"seconds": [^\n]*', "", ran.stdout)
    return {**hashes(out, question[0]), "standard output": hashlib.sha256(shown.encode()).hexdigest()}


def together(alone):
    """All of them in two runs, a locale, a zone and a number of threads in each: bits that are those of the plain run
    depend on none. Where they are not, each is run alone, to say which it is."""
    out = []
    for half in (alone[0::2], alone[1::2]):
        how = {}
        for _, one in half:
            threads = one["threads"] if one.keys() == {"threads"} else how.get("threads", 1)
            how = {**how, **one, "threads": threads, "environment": {**how.get("environment", {}), **one.get("environment", {})}}
        out.append((" and ".join(name for name, _ in half), how))
    return out


def main():
    with tempfile.TemporaryDirectory() as work:
        tables(work)
        alone = [(f"{n} threads", {"threads": n}) for n in (2, 8)]
        locales = [] if BINARIES[1:] else comma_locales(work)
        if len(locales) < 2 and not BINARIES[1:]:
            print(f"skipped: {2 - len(locales)} of two locales with a decimal comma (none is installed or can be made)")
        alone += [(f"locale {name}", {"threads": 1, "environment": {"LC_ALL": name, **more}}) for name, more in locales]
        alone += [(f"time zone {zone}", {"threads": 1, "environment": {"TZ": zone}})
                  for zone in ("Pacific/Kiritimati", "America/St_Johns")]
        alone.append(("another working directory", {"threads": 1, "elsewhere": True}))
        variants = together(alone)
        faults = 0
        for question in QUESTIONS:
            first = answer(BINARIES[0], question, work, threads=1)
            compared = [] if BINARIES[1:] else [(name, answer(BINARIES[0], question, work, **how)) for name, how in variants]
            compared += [(binary, answer(binary, question, work, threads=1)) for binary in BINARIES[1:]]
            if any(other != first for name, other in compared if name in dict(variants)):  # which of them does it?
                compared += [(name, answer(BINARIES[0], question, work, **how)) for name, how in alone]
            for name, other in compared:
                differ = sorted(f for f in first.keys() | other.keys() if first.get(f) != other.get(f))
                if differ:
                    faults += 1
                    print(f"FAILED: {' '.join(question)}: {name} changes {', '.join(differ)}")
            print(f"  {' '.join(question)}: {len(first) - 1} files, {len(compared)} ways", flush=True)
        return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
