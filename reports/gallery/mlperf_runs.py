"""MLPerf Inference v5.1 server runs: requests, targets and start options with their sources, and how `shardline serve` is
asked to play them. mlperf.py makes the page of it."""
import csv
import json
import math
import os
import pathlib
import random
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MEASURED = "mlperf51_server_hopper.csv"
MIN_DURATION_S = 600  # *.Server.min_duration of mlperf.conf
SEED = 1
FRACTIONS = (1, .95, .9)
# As the harness does: to the GPU with the fewest requests that are not answered, of equal ones the first (code/llmlib/
# factory.py, load_balancing).
ROUTER = "least_requests"

ATTENTION = {"num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32}
# FP8 weights and inputs with static scales, as all of these submissions have them; the cache's type follows the engine.
FP8 = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}
MODELS = {  # as config.json of each checkpoint has them
    "llama2-70b": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8192,
                   "intermediate_size": 28672, **ATTENTION, "num_attention_heads": 64, "num_hidden_layers": 80,
                   "vocab_size": 32000, "max_position_embeddings": 4096},
    "llama3.1-8b": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
                    "intermediate_size": 14336, **ATTENTION, "vocab_size": 128256, "max_position_embeddings": 131072},
    "mixtral-8x7b": {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": 4096,
                     "intermediate_size": 14336, **ATTENTION, "vocab_size": 32000, "num_local_experts": 8,
                     "num_experts_per_tok": 2, "max_position_embeddings": 32768},
}
# Samples of each data set (mlperf.conf, performance_sample_count_override), longest prompt and longest answer.
SAMPLES = {"llama2-70b": 24576, "llama3.1-8b": 13368, "mixtral-8x7b": 15000}
LONGEST = {"llama2-70b": (1024, 1024), "llama3.1-8b": (2540, 128), "mixtral-8x7b": (2048, 1024)}
# 99th percentiles of TTFT and TPOT in seconds (mlperf.conf, ttft_latency and tpot_latency).
TARGETS = {("llama2-70b", "Server"): (2, .2), ("llama2-70b", "Interactive"): (.45, .04), ("llama3.1-8b", "Server"): (2, .1),
           ("llama3.1-8b", "Interactive"): (.5, .03), ("mixtral-8x7b", "Server"): (2, .2)}
# Answers of Llama-2-70B, (share of requests, tokens): 1 + (E2E - mean TTFT) / mean TPOT at the percentiles of three
# Interactive summaries (Cisco, Nebius, Google), which agree within 2 %. None is published below the median: the quarter
# is what makes the mean that of the summaries, 292.7 tokens.
LLAMA2_ANSWERS = ((0, 4), (.25, 135.6), (.5, 254.5), (.9, 527), (.95, 648), (.97, 743), (.99, 960), (1, 1024))

# The last one: the C++ executor has one micro batch, so that a step is decided when the one before has ended (NVIDIA/
# TensorRT-LLM 00825c4ee813, cpp/tensorrt_llm/batch_manager/trtGptModelInflightBatching.cpp: mNumMicroBatches is 2 with
# isTrtOverlap() alone, which is ExecutorConfig's enableTrtOverlap, false unless given; the harness gives none).
TRT = {"capacity_scheduler_policy": "MAX_UTILIZATION", "context_chunking_policy": "FIRST_COME_FIRST_SERVED",
       "enable_chunked_prefill": "true", "enable_block_reuse": "false", "disable_overlap_scheduler": "true"}
# Start options by benchmark, scenario and beginning of the system's name, the first that fits: where they were read below
# closed/ of mlcommons/inference_results_v5.1, and whether they are the system's own.
OPTIONS = [
    ("llama2-70b", "Interactive", "", 256, 512, "Nebius/configs/H200-SXM-141GBx8/Interactive/llama2-70b.py", True),
    ("llama2-70b", "Server", "HGX-H100", 1536, 2048, "", False),
    ("llama2-70b", "Server", "", 1536, 2048, "Cisco/configs/C885_H200x8/Server/llama2-70b.py", True),
    ("llama3.1-8b", "Interactive", "HPE", 12000, 2048,
     "HPE/configs/HPE_Cray_XD670_H200_SXM_141GBx8/Interactive/llama3_1-8b.py", True),
    ("llama3.1-8b", "Interactive", "D74U", 1536, 2048,
     "Quanta_Cloud_Technology/configs/D74U-7U_H200-SXM-141GBx8/Interactive/llama3_1-8b.py", True),
    ("llama3.1-8b", "Server", "HPE", 12000, 2048, "HPE/configs/HPE_Cray_XD670_H200_SXM_141GBx8/Server/llama3_1-8b.py", True),
    ("llama3.1-8b", "Server", "XE8640", 1024, 512, "RedHat/code/llama3.1-8b/README.md", True),
    ("llama3.1-8b", "Server", "D74U", 1536, 2048,
     "Quanta_Cloud_Technology/configs/D74U-7U_H200-SXM-141GBx8/Server/llama3_1-8b.py", True),
    ("llama3.1-8b", "Server", "", 1536, 2048, "Cisco/configs/C845A_H200_NVLx8/Server/llama3_1-8b.py", False),
    ("mixtral-8x7b", "Server", "", 8192, 3072, "HPE/configs/HPE_Cray_XD670_H200_SXM_141GBx8/Server/mixtral-8x7b.py", True),
]
# Rates that a configuration's comment calls invalid: the only refusals that are published.
INVALID = [("llama3.1-8b", "Interactive", "HPE", 420), ("llama3.1-8b", "Server", "HPE", 510)]
# Samples/s of the same systems' Offline runs: all requests are there at once, no target, no streaming. closed/SUBMITTER/
# results/SYSTEM/BENCHMARK/Offline/performance/run_1/mlperf_log_summary.txt. By beginning of the system's name, the first
# that fits, and "99.9 %" where that accuracy has a run of its own. Their options are the Server runs' (but for a batch of
# 2,506 of HPE's Llama-2-70B); Red Hat's are others.
OFFLINE = [
    ("llama2-70b", "ESC_N8", "99.9 %", 119.591), ("llama2-70b", "ESC_N8", "", 120.235), ("llama2-70b", "C885A", "", 235.675),
    ("llama2-70b", "C885_", "", 118.429), ("llama2-70b", "XE9680L", "", 118.567), ("llama2-70b", "XE9680_", "", 120.831),
    ("llama2-70b", "HPE", "99.9 %", 119.282), ("llama2-70b", "HPE", "", 119.856), ("llama2-70b", "D74U", "99.9 %", 118.872),
    ("llama2-70b", "D74U", "", 119.605), ("llama3.1-8b", "C885_", "", 455.503), ("llama3.1-8b", "HPE", "", 515.912),
    ("llama3.1-8b", "D74U", "", 444.667)]
OFFLINE_OF = {"Google": 119.442, "Nebius": 118.653}  # whose systems are both named H200-SXM-141GBx8
OFFLINE_PASSES, OFFLINE_RATE = 2, 1000  # over the data set, on one GPU: as many samples as one of eight had; requests/s, far too many
NOT_COUNTED = {
    "mixtral-8x7b": "Mixtral: its experts are TensorRT engines' kernels, ours are priced by those of PyTorch's",
    "HGX-H100": "H100: start options are not published; NVIDIA's own of v5.0 split Llama-2-70B into two stages of a "
                "pipeline, which `serve` does not play, so TP over two GPUs stands in"}


def options_of(row):
    for bench, scenario, system, tokens, requests, file, own in OPTIONS:
        if (bench, scenario) == (row["bench"], row["scenario"]) and row["system"].startswith(system):
            return {"tokens": tokens, "requests": requests, "file": file, "own": own}
    sys.exit(f"no start options of {row['system']}, {row['bench']}, {row['scenario']}")


def offline_of(row):
    """Samples/s of the system's Offline run, or None."""
    if row["bench"] == "llama2-70b" and row["submitter"] in OFFLINE_OF:
        return OFFLINE_OF[row["submitter"]]
    return next((rate for bench, system, accuracy, rate in OFFLINE if bench == row["bench"] and row["system"].startswith(system)
                 and accuracy in ("", row["accuracy"])), None)


def read(folder):
    """Rows of systems that are in the catalogue, a run that was submitted twice (at 99 and 99.9 % accuracy) once."""
    rows, seen, left = [], set(), {}
    with open(folder / MEASURED, newline="", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    for r in table:
        run = (r["submitter"], r["system"], r["scenario"], r["completed_samples_per_s"], r["ttft_mean_ms"], r["benchmark"][:6])
        why = ("NVL cards" if "NVL" in r["accelerator"] else "virtual machines" if "Virtual" in r["accelerator"] else
               "submitted twice" if run in seen else None)
        seen.add(run)
        if why:
            left[why] = left.get(why, 0) + 1
            continue
        nodes, each = map(int, r["accelerators"].split("x"))
        row = {"submitter": r["submitter"], "system": r["system"], "scenario": r["scenario"], "rate": float(r["target_qps"]),
               "bench": "llama2-70b" if r["benchmark"].startswith("llama2") else r["benchmark"], "gpus": nodes * each,
               "on": "h200-hgx" if "H200" in r["accelerator"] else "h100-hgx", "valid": r["valid"] == "VALID",
               "answer": float(r["tok_per_s"]) / float(r["completed_samples_per_s"]),
               "engine": "vllm" if "vLLM" in r["system"] else "trtllm", "accuracy": "99.9 %" if "99.9" in r["benchmark"] else ""}
        row |= {k: float(r[k + "_ms"]) / 1e3 for k in ("ttft_p50", "ttft_p99", "tpot_p50", "tpot_p99")}
        row |= options_of(row)
        row["offline"] = offline_of(row)
        row["tp"] = 2 if row["on"] == "h100-hgx" and row["bench"] == "llama2-70b" else 1
        row["why_not"] = next((why for name, why in NOT_COUNTED.items() if row["bench"] == name or row["system"].startswith(name)), "")
        rows.append(row)
    return rows, left, len(table)


def quantiles(bench, what):
    """(share of requests, tokens) in order."""
    if (bench, what) == ("llama2-70b", "output"):
        return LLAMA2_ANSWERS
    if (bench, what) == ("llama3.1-8b", "output"):
        return ((0, 128), (1, 128))  # nearly all answers are cut there (max_output_len; 129.0 reported per sample)
    with open(ROOT / "reports" / "gallery" / "mlperf_lengths.csv", newline="", encoding="utf-8") as file:
        return [(float(r["quantile"]), float(r[f"{bench} {what}"])) for r in csv.DictReader(file)]


def mean(points):
    """Of the law that is linear between its quantiles."""
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in zip(points, points[1:]))


def at(points, share):
    for (q0, x0), (q1, x1) in zip(points, points[1:]):
        if share <= q1:
            return x0 + (x1 - x0) * (share - q0) / (q1 - q0)
    return points[-1][1]


def changed(points, scale, spread, longest):
    """Law with another mean or, given a spread, a lognormal of that logarithmic deviation and the same mean."""
    if spread is None:
        return [(q, min(longest, max(2, x * scale))) for q, x in points]
    normal = [(q / 200, math.sqrt(2) * inverse_erf(q / 100 - 1)) for q in range(1, 200)]
    goal, low, high = mean(points) * scale, 1.0, float(longest)
    for _ in range(60):
        middle = math.sqrt(low * high)
        law = [(q, min(longest, max(2, middle * math.exp(spread * z)))) for q, z in normal]
        law = [(0, law[0][1]), *law, (1, law[-1][1])]
        low, high = (middle, high) if mean(law) < goal else (low, middle)
    return law


def inverse_erf(y):
    low, high = -6.0, 6.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if math.erf(middle) < y else (low, middle)
    return low


def write_trace(path, bench, laws, passes, seed=SEED):
    """Requests of a second's mean rate 1: as LoadGen sends them, whole passes over the data set in random order, Poisson."""
    source, samples = random.Random(seed), SAMPLES[bench]
    sizes = [[max(2, round(at(law, (i + .5) / samples))) for i in range(samples)] for law in laws]
    now = 0.0
    with open(path, "w", encoding="utf-8") as file:
        file.write("arrival_s,input_tokens,output_tokens\n")
        for _ in range(passes):
            for law in sizes:
                source.shuffle(law)
            for prompt, answer in zip(*sizes):
                now += source.expovariate(1)
                file.write(f"{now:.6f},{prompt},{answer}\n")


class Player:
    """Plays one configuration at any rate on so many GPUs: passes over the data set that last the least duration at `rate`, or
    so many. What was played is kept in `kept` by the command and the trace."""

    def __init__(self, asked, row, gpus, rate, router=ROUTER, laws=None, tag="", seed=SEED, passes=0):
        self.asked, self.row, self.gpus, self.router, self.changed = asked, row, gpus, router, laws is not None
        self.laws = laws or [quantiles(row["bench"], w) for w in ("input", "output")]
        self.passes = passes or math.ceil(rate * MIN_DURATION_S / SAMPLES[row["bench"]])
        self.seed, self.tag, self.folder = seed, f"{tag} seed {seed} passes {self.passes}", None

    def prepare(self):
        bench = self.row["bench"]
        self.folder = self.asked.folder
        config = MODELS[bench] | {"torch_dtype": "bfloat16", "quantization_config": FP8}
        if self.row["engine"] == "vllm":  # --kv-cache-dtype is auto, so 16 bits
            config["quantization_config"] = {k: v for k, v in FP8.items() if "kv" not in k}
        (self.folder / f"{bench}.json").write_text(json.dumps(config))
        write_trace(self.folder / "trace.csv", bench, self.laws, self.passes, self.seed)

    def command(self, rate):
        row, (prompt, answer) = self.row, LONGEST[self.row["bench"]]
        knobs = ({"max_num_batched_tokens": row["tokens"], "max_num_seqs": row["requests"], "async_scheduling": "false",
                  "long_prefill_token_threshold": 256} if row["engine"] == "vllm" else
                 {"max_num_tokens": row["tokens"], "max_batch_size": row["requests"], **TRT})
        ttft, tpot = TARGETS[row["bench"], row["scenario"]]
        # The harness calls the executor in its own process (code/llmlib/cores/trtllm_executor_core.py); Red Hat's asks a server.
        path = [] if row["engine"] == "vllm" else ["--path", "0"]
        return ["serve", f"{row['bench']}.json", "--system", row["on"], "--gpus", str(self.gpus), "--input", str(prompt),
                "--output", str(answer), "--plan", f"tensor:tpa={row['tp']},tpf={row['tp']}", "--replicas",
                str(self.gpus // row["tp"]), "--router", self.router, "--engine", row["engine"], "--trace", "trace.csv", "--rate",
                f"{rate:.6g}/s", *path, "--slo", f"ttft p99 {ttft * 1e3:g} ms, tpot p99 {tpot * 1e3:g} ms",
                *(word for k, v in knobs.items() for word in ("--knob", f"{k}={v}"))]

    def play(self, rate):
        """Quantiles in seconds at this rate of all GPUs, and whether both targets are met."""
        key = " ".join([*self.command(rate), self.tag])
        if key not in self.asked.kept:
            if self.folder is None:
                self.prepare()
            self.asked.kept[key] = self.asked.ask(self.command(rate))
            self.asked.keep()
        if not self.changed:
            self.asked.played.setdefault((group_of(self.row), self.gpus), {})[rate] = self.asked.kept[key]
        return self.asked.kept[key]

    def largest(self, start, width=.01):
        """(rate, rate): the largest within the targets lies between them, so far apart at most."""
        low, high = (start, None) if self.play(start)["met"] else (None, start)
        while low is None or high is None:
            rate = low * 1.12 if high is None else high / 1.12
            if rate < start / 20:
                return 0.0, high
            low, high = (rate, high) if self.play(rate)["met"] else (low, rate)
        while high / low > 1 + width:
            rate = math.sqrt(low * high)
            low, high = (rate, high) if self.play(rate)["met"] else (low, rate)
        return low, high


class Asked:
    """The program, and what it has answered."""

    def __init__(self, program, folder, path):
        self.program, self.folder, self.path = program, folder, path
        self.kept = json.loads(path.read_text()) if path.exists() else {}
        self.played = {}  # by group and GPUs, then by rate: what the picture shows

    def ask(self, command):
        if self.program is None:
            sys.exit(f"not kept: {' '.join(command)}")
        done = subprocess.run([self.program, *command, "--json"], cwd=self.folder, capture_output=True, text=True,
                              env={"SHARDLINE_DATA": str(ROOT), **os.environ})
        if done.returncode not in (0, 3) or not done.stdout:
            sys.exit(f"{' '.join(done.args)}\n{done.stderr}")
        answer = json.loads(done.stdout)
        out = {"met": answer["met"], "per_s": answer["requests_per_s"], "running": answer["running"],
               "kv_most": answer["kv_most"], "sent": answer["sent"], "preemptions": answer["preemptions"], "prompts": answer["time_with_prompts"]}
        for latency in answer["latencies"]:
            name = latency["latency"].lower()
            out |= {f"{name}_p{100 * q['quantile']:g}": q["value_s"] for q in latency["quantiles"]}
            out[name + "_mean"] = latency["mean_s"]
        print(" ".join(command), out["met"], flush=True)
        return out

    def keep(self):
        self.path.write_text(json.dumps(self.kept, indent=0) + "\n")


def group_of(row):
    """Rows of one group differ in rate and number of GPUs alone."""
    return tuple(row[k] for k in ("bench", "scenario", "on", "engine", "tp", "tokens", "requests"))


def offline(asked, row):
    """Requests/s that one replica serves when all are there at once, by options of a Server run."""
    return Player(asked, row, row["tp"], OFFLINE_RATE, tag="offline", passes=OFFLINE_PASSES).play(OFFLINE_RATE)["per_s"]


def evaluate(asked, rows):
    """Plays all GPUs at the submitted rate and, where that misses a target, at .95 and .9 of it; the fewest GPUs of a group for
    the largest rate. Also at two rates that stand to the played system as the submitted one to the measured: the same share
    of its group's largest rate, and of the system's Offline rate."""
    groups, saturated = {}, {}
    for row in rows:
        groups.setdefault(group_of(row), []).append(row)
    for own in groups.values():
        fewest, best = min(own, key=lambda r: r["gpus"]), max(r["rate"] / r["gpus"] for r in own)
        gpus = fewest["gpus"]
        low, high = Player(asked, fewest, gpus, best * gpus).largest(best * gpus)
        for row in own:
            row["largest"], row["group_best"], row["fewest"] = (low / gpus, high / gpus), best, gpus
    for row in rows:
        player = Player(asked, row, row["gpus"], row["rate"])
        row["at"] = {1: player.play(row["rate"])}
        for f in FRACTIONS[1:]:  # what is met at a rate is met below it
            row["at"][f] = row["at"][1] if row["at"][1]["met"] or row["why_not"] else player.play(f * row["rate"])
        low = row["largest"][0]
        row["alike"] = player.play(float(f"{row['rate'] * low / row['group_best']:.4g}")) if low and not row["why_not"] else None
        row["played_offline"] = row["of_offline"] = None
        if row["offline"] and not row["why_not"]:
            options = row | {"scenario": "Server"}
            options |= options_of(options)
            key = group_of(options)
            if key not in saturated:
                saturated[key] = offline(asked, options)
            row["played_offline"] = saturated[key] * row["gpus"] / row["tp"]
            row["of_offline"] = player.play(float(f"{row['rate'] * row['played_offline'] / row['offline']:.4g}"))
    return groups


VARIANTS = [  # name, (scale, spread) of prompts, (scale, spread) of answers, seed
    ("as it is", (1, None), (1, None), SEED), ("another seed", (1, None), (1, None), 2),
    ("prompts 20 % shorter", (.8, None), (1, None), SEED), ("prompts 20 % longer", (1.2, None), (1, None), SEED),
    ("prompts lognormal, spread 0.5", (1, .5), (1, None), SEED), ("prompts lognormal, spread 1.0", (1, 1.), (1, None), SEED),
    ("answers lognormal, spread 0.5", (1, None), (1, .5), SEED), ("answers lognormal, spread 1.0", (1, None), (1, 1.), SEED)]


def vary(asked, groups):
    """Largest rate of one GPU by group and variant; None where answers do not vary."""
    out = {}
    for key, own in groups.items():
        row = own[0]
        if row["why_not"] or row["engine"] == "vllm" or key[5] == 12000:
            continue
        for name, prompts, answers, seed in VARIANTS:
            if row["bench"] == "llama3.1-8b" and answers[1]:
                continue
            laws = None if name == VARIANTS[0][0] else [
                changed(quantiles(row["bench"], w), *by, most)
                for w, by, most in zip(("input", "output"), (prompts, answers), LONGEST[row["bench"]])]
            start = row["group_best"]
            out[key, name] = Player(asked, row, 1, start, laws=laws, tag=name if laws else "", seed=seed).largest(start)[0]
    return out
