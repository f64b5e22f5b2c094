"""Results are the documents of the program, and their tables its CSV files."""

import copy
import csv
import dataclasses
import gc
import math
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest

import shardline


def plain(value):
    """As the document of --json has it."""
    if isinstance(value, (tuple, shardline.Rows)):
        return [plain(v) for v in value]
    if dataclasses.is_dataclass(value):
        out = {"schema": value.SCHEMA} if hasattr(value, "SCHEMA") else {}
        # `from` is a keyword of Python.
        out.update((f.name.removesuffix("_"), plain(getattr(value, f.name))) for f in dataclasses.fields(value))
        return out
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def but_for_who_was_asked(document):
    document.pop("command")
    for warning in document.get("warnings", []):  # an option of the program is an argument here: knob="max_num_seqs=16"
        warning["details"] = [re.sub(r'--(\w+) (\S+)|(\w+)="([^"]+)"', r"\1\3 \2\4", d) for d in warning["details"]]
    for model in document.get("models") or [document.get("sweep", {})]:
        model.get("counts", {}).pop("seconds", None)
    return document


PARAMETERS = ["--costs", "parameters"]
LISTS = ("models", "systems", "strategies", "options", "scenarios", "acceptance")
PLAN = "tensor:tpa=8,tpf=8,batch=1"
TWO = "tensor:tpa=2,tpf=2,batch=1"
FOUR, EIGHT = "tensor:tpa=4,tpf=4,batch=16", "tensor:tpa=8,tpf=8,batch=16"
SMALL = dict(system="h100-hgx", gpus=2, input="8K", output=512)
ON_TWO_GPUS = ["llama-3.1-8b", "--system", "h100-hgx", "--gpus", "2", "--input", "8K", "--output", "512"]


@pytest.mark.parametrize(
    "ask, line",
    [
        (lambda: shardline.sweep("small.yaml", ttl="25 ms"), ["sweep", "small.yaml", "--ttl", "25 ms"]),
        (lambda: shardline.sweep("small.yaml", all=True), ["sweep", "small.yaml", "--all"]),
        (lambda: shardline.sweep("served.yaml"), ["sweep", "served.yaml"]),
        (lambda: shardline.sweep("prefill.yaml", costs="parameters"), ["sweep", "prefill.yaml", *PARAMETERS]),
        (lambda: shardline.simulate("mixed.yaml", plan=PLAN), ["simulate", "mixed.yaml", "--plan", PLAN]),
        (lambda: shardline.explain("served.yaml", plan=FOUR), ["explain", "served.yaml", "--plan", FOUR]),
        (
            lambda: shardline.compare("served.yaml", plan=[FOUR, EIGHT]),
            ["compare", "served.yaml", "--plan", FOUR, "--plan", EIGHT],
        ),
        (
            lambda: shardline.handoff("served.yaml", prefill=TWO, decode=EIGHT, tokens="8K", at_once=3),
            ["handoff", "served.yaml", "--prefill", TWO, "--decode", EIGHT, "--tokens", "8K", "--at-once", "3"],
        ),
        (
            lambda: shardline.serve(model="llama-3.1-8b", **SMALL, rate="2/s", requests=50, slo="ttft p99 2 s"),
            ["serve", *ON_TWO_GPUS, "--rate", "2/s", "--requests", "50", "--slo", "ttft p99 2 s"],
        ),
        (
            lambda: shardline.plan(
                "llama-3.1-8b", **SMALL, rate="2/s", requests=50, slo="ttft p99 2 s", knob=["max_num_seqs=2,64"], engine="vllm"
            ),
            ["plan", *ON_TWO_GPUS, "--rate", "2/s", "--requests", "50", "--slo", "ttft p99 2 s", "--engine", "vllm"]
            + ["--knob", "max_num_seqs=2,64"],
        ),
        (
            lambda: shardline.serve(
                "served.yaml", plan=EIGHT, engine="vllm", users=4, lengths="drawn", knob=["max_num_seqs=3"], seed=2
            ),
            ["serve", "served.yaml", "--plan", EIGHT, "--engine", "vllm", "--users", "4", "--lengths", "drawn"]
            + ["--knob", "max_num_seqs=3", "--seed", "2"],
        ),
        (
            lambda: shardline.serve(
                "served.yaml", plan=FOUR, engine="vllm", rate="2/s", requests=40, prefill="tensor:tpa=4,tpf=4", prefill_replicas=2
            ),
            ["serve", "served.yaml", "--plan", FOUR, "--engine", "vllm", "--rate", "2/s", "--requests", "40"]
            + ["--prefill", "tensor:tpa=4,tpf=4", "--prefill-replicas", "2"],
        ),
        (lambda: shardline.thresholds("rings.yaml"), ["thresholds", "rings.yaml"]),
        (
            lambda: shardline.thresholds(
                "rings.yaml", trace="thresholds_context/prompts.csv", rate="2/s", chunk="4K", requests="30"
            ),
            ["thresholds", "rings.yaml", "--trace", "thresholds_context/prompts.csv", "--rate", "2/s"]
            + ["--chunk", "4K", "--requests", "30"],
        ),
        (lambda: shardline.partition("parts.yaml"), ["partition", "parts.yaml"]),
        (lambda: shardline.conversation("talk.yaml"), ["conversation", "talk.yaml"]),
        (lambda: shardline.plan("llama-3.1-8b", **SMALL, ttl=0.04), ["plan", *ON_TWO_GPUS, "--ttl", "40 ms"]),
        (
            lambda: shardline.plan("llama-3.1-8b", **SMALL, tokens_per_user=1000),
            ["plan", *ON_TWO_GPUS, "--tokens-per-user", "1000"],
        ),
        *[(lambda what=what: shardline.list(what), ["list", what]) for what in LISTS],
    ],
)
def test_results_are_the_documents_of_the_program(folder, program, ask, line):
    ours = but_for_who_was_asked(plain(ask()))
    theirs = but_for_who_was_asked(program.document(*line))
    assert ours == theirs
    assert len(str(theirs)) > 200


@pytest.mark.parametrize("users", [4, 400], ids=["all run", "some wait"])
@pytest.mark.parametrize("ask", [shardline.explain, shardline.compare], ids=["explain", "compare"])
def test_questions_of_a_line_are_those_of_the_program(program, ask, users):
    """By the line, and by the answer of plan to it: the same documents but for the comments of the scenario's text."""
    changed = "device.memory.bandwidth=3 TB/s"
    line = [ask.__name__, *ON_TWO_GPUS, "--users", str(users), "--engine", "vllm", "--set", changed]
    theirs = but_for_who_was_asked(program.document(*line))
    asked = dict(users=users, engine="vllm", set=[changed])
    answer = shardline.plan("llama-3.1-8b", **SMALL, **asked)
    for ours in (ask("llama-3.1-8b", **SMALL, **asked), ask(model="llama-3.1-8b", **SMALL, **asked), ask(answer)):
        document = but_for_who_was_asked(plain(ours))
        text = document["question"].pop("scenario_text")
        assert "workload: " in text
        expected = {**theirs, "question": {k: v for k, v in theirs["question"].items() if k != "scenario_text"}}
        assert document == expected
    best = answer.plans[0].point
    served = ours.served if ask is shardline.explain else ours.plans[0].served
    assert (served.users, served.tpot_s, served.ttft_s) == (best.requests, best.tpot_s, best.ttft_s)
    assert (best.waiting > 0) == (users == 400)


def test_serve_says_which_words_change_nothing(program):
    """As the program does on standard error: a router with one replica, a setting that no step reads."""
    asked = dict(rate="2/s", requests=50, plan="tensor:tpa=2,tpf=2", router="prefix", set=["device.power_limit_w=600"])
    line = ["serve", *ON_TWO_GPUS, "--rate", "2/s", "--requests", "50", "--plan", "tensor:tpa=2,tpf=2"]
    theirs = program.document(*line, "--router", "prefix", "--set", "device.power_limit_w=600")
    for warnings in (theirs["warnings"], plain(shardline.serve(model="llama-3.1-8b", **SMALL, **asked))["warnings"]):
        told = [w["message"].removeprefix("--") for w in warnings]
        assert any(m.startswith("device.power_limit_w changes nothing here") for m in told), told
        assert any(m.startswith("router changes nothing here") for m in told), told


@pytest.mark.parametrize("ask", [shardline.explain, shardline.compare], ids=["explain", "compare"])
def test_questions_of_a_line_say_whether_they_are_met(program, ask):
    for ttl, met in (("1 ms", False), ("40 ms", True)):
        asked = dict(users=4, engine="vllm", ttl=ttl)
        theirs = program.document(ask.__name__, *ON_TWO_GPUS, "--users", "4", "--engine", "vllm", "--ttl", ttl)
        ours = ask("llama-3.1-8b", **SMALL, **asked)
        assert (theirs["met"], ours.met) == (met, met)
        assert ask(shardline.plan("llama-3.1-8b", **SMALL, **asked)).met is met
    named = [p.point.plan for p in shardline.plan("llama-3.1-8b", **SMALL, **asked).plans[:2]]
    assert ask("llama-3.1-8b", **SMALL, **asked, plan=named[0] if ask is shardline.explain else named).met is None


def test_questions_of_a_line_say_what_they_lack(folder):
    answer = shardline.plan("llama-3.1-8b", **SMALL)
    none = shardline.plan("llama-3.1-405b", system="h100-hgx", gpus=1, input="8K", output=512)
    for ask, text in (
        (lambda: shardline.explain("llama-3.1-8b", system="h100-hgx"), "input is missing: a question of one line has system"),
        (lambda: shardline.compare("llama-3.1-8b", input="8K"), "system is missing"),
        (lambda: shardline.explain("small.yaml"), "plan is required with a scenario, or a question of one line"),
        (lambda: shardline.compare("small.yaml"), "plan is required with a scenario"),
        (lambda: shardline.explain(answer, input="4K"), "input: the answer of plan has its question"),
        (lambda: shardline.explain(answer, model="llama-3.1-70b"), "model: the answer of plan has its question"),
        (lambda: shardline.explain("a", model="b", **SMALL), "names a model alone"),
        (lambda: shardline.explain(none), "the question has 0 plans, and one is wanted"),
        (lambda: shardline.compare(none), "the question has 0 plans, and two are wanted"),
    ):
        with pytest.raises(shardline.BadInput, match=re.escape(text)):
            ask()


def test_frames_have_the_cells_of_the_csv(folder, program):
    pandas = pytest.importorskip("pandas")
    assert program.run("sweep", "small.yaml", "-o", "out").returncode == 0
    result = shardline.sweep("small.yaml")
    table = pandas.DataFrame(result.points)
    for model in result.models:
        file = folder / "out" / model.setting.model / "frontier.csv"
        theirs = pandas.read_csv(file, comment="#", float_precision="round_trip")
        ours = table[table.model == model.setting.model].reset_index()
        assert len(ours) == len(theirs) > 5
        assert list(ours["plan"]) == list(theirs["plan"])
        assert list(ours["strategy"]) == list(theirs["strategy"])
        assert list(ours["what"]) == list(theirs["what"]) == ["decode only by bare kernels"] * len(ours)
        for name, unit, of_file in COLUMNS:
            # The file has milliseconds and gigabytes: the last digit may differ.
            np.testing.assert_allclose(ours[name] * unit, theirs[of_file], rtol=1e-14, err_msg=name)


COLUMNS = [
    ("gpus", 1, "gpus"),
    ("batch", 1, "batch"),
    ("requests", 1, "users"),
    ("ttl_s", 1e3, "ttl_ms"),
    ("ttl_s_low", 1e3, "ttl_low_ms"),
    ("ttl_s_high", 1e3, "ttl_high_ms"),
    ("tokens_per_s_user", 1, "tokens_per_s_user"),
    ("tokens_per_s_gpu", 1, "tokens_per_s_gpu"),
    ("tokens_per_s_gpu_high", 1, "tokens_per_s_gpu_high"),
    ("memory_bytes_per_gpu", 1e-9, "memory_gb_per_gpu"),
    ("degrees.kvp", 1, "kvp"),
    ("shares.extrapolated", 1, "extrapolated_share"),
]


def test_the_frontier_is_what_nothing_beats(folder):
    pandas = pytest.importorskip("pandas")
    result = shardline.sweep("small.yaml")
    frontier = pandas.DataFrame(result.frontier)
    points = pandas.DataFrame(result.points)
    best = set(points[points.on_frontier == 1].plan)
    assert set(frontier.plan) == best and 0 < len(best) < len(points)
    assert list(frontier.columns)[:3] == ["model", "plan", "strategy"]
    assert frontier.gpus.dtype == np.int64 and frontier.exact.dtype == np.bool_
    assert set(frontier.model) == {m.setting.model for m in result.models}


def test_tables_of_several_models_are_one(folder):
    result = shardline.sweep(scenario_text=(folder / "small.yaml").read_text())
    assert len(result.models) == 2
    points = result.points
    assert sum(len(m.points) for m in result.models) == len(points["plan"]) == len(points["ttl_s"])
    assert list(dict.fromkeys(points["model"])) == [m.setting.model for m in result.models]
    at = len(result.models[0].points)
    assert points["ttl_s"][at] == result.models[1].points[0].ttl_s.value


def test_columns_have_what_rows_have(folder):
    points = shardline.sweep("small.yaml").models[0].points
    columns = points.columns
    assert {len(c) for c in columns.values()} == {len(points)}
    for i, row in enumerate(points):
        assert columns["plan"][i] == row.plan
        assert columns["gpus"][i] == row.gpus
        assert columns["exact"][i] == row.exact
        assert columns["ttl_s"][i] == row.ttl_s.value and columns["ttl_s_high"][i] == row.ttl_s.high
        assert columns["degrees.tpa"][i] == row.degrees.tpa
        assert columns["options"][i] == ",".join(f"{k}={v}" for k, v in row.options.items())
        assert row.tpot_s is None and math.isnan(columns["tpot_s"][i])


def test_columns_of_numbers_are_views_that_outlive_the_result():
    result = shardline.plan("llama-3.1-8b", **SMALL)
    columns = result.sweep.points.columns
    # Of one model, and so not copied on the way into the table of all, either.
    assert all(result.points[name] is columns[name] for name in columns)
    owners = set()
    for name in ("tpot_s", "gpus", "exact"):
        column = columns[name]
        assert not column.flags.owndata and not column.flags.writeable
        assert type(column.base).__name__ == "PyCapsule"
        owners.add(id(column.base))
    assert len(owners) == 1
    ttl = columns["tpot_s"]
    kept = ttl.copy()
    del result, columns, column
    gc.collect()
    assert (ttl == kept).all()


def test_rows_are_a_sequence(folder):
    points = shardline.sweep("small.yaml").models[0].points
    assert points[-1] == points[len(points) - 1] and points[-1] != points[0]
    assert points[1:3] == (points[1], points[2])
    assert points[0] in points and list(reversed(points))[0] == points[-1]
    for index in (len(points), -len(points) - 1):
        with pytest.raises(IndexError):
            points[index]


def test_results_are_equal_frozen_and_can_be_pickled(folder):
    first = shardline.simulate("mixed.yaml", plan=PLAN)
    assert first == shardline.simulate("mixed.yaml", plan=PLAN)
    assert first != shardline.simulate("mixed.yaml", plan="tensor:tpa=8,tpf=8,batch=2")
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.fits = False
    sweep = shardline.sweep("small.yaml")
    for other in (pickle.loads(pickle.dumps(sweep)), copy.deepcopy(sweep)):
        assert other == sweep
        assert list(other.frontier) == list(sweep.frontier)
        assert (other.frontier["ttl_s"] == sweep.frontier["ttl_s"]).all()


# NumPy is no requirement: rows are pickled without it.
WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None
import pickle, shardline
first = shardline.sweep("small.yaml")
other = pickle.loads(pickle.dumps(first))
assert other == first and list(other.models[0].points) == list(first.models[0].points)
try:
    other.models[0].points.columns
except ModuleNotFoundError as e:
    print(e)
"""


def test_rows_are_pickled_without_numpy(folder):
    ran = subprocess.run([sys.executable, "-c", WITHOUT_NUMPY], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "") and "no columns" in ran.stdout


def test_a_plan_is_swept_and_simulated_further():
    answer = shardline.plan("llama-3.1-8b", **SMALL, ttl="40 ms").check()
    assert answer.met and answer.plans[0].meets and "measured points" in answer.engine_why
    again = shardline.sweep(scenario_text=answer.scenario_text, ttl="40 ms")
    assert again.models[0].meeting[0].point.plan == answer.plans[0].point.plan
    best = shardline.simulate(scenario_text=answer.scenario_text, plan=answer.plans[0].point.plan)
    assert best.served.tpot_s.value == answer.plans[0].point.tpot_s.value


def test_all_is_kept_where_it_is_asked_for(folder):
    every = shardline.sweep("small.yaml", all=True).all
    assert len(every["plan"]) > 100
    with pytest.raises(ValueError, match="all=True"):
        shardline.sweep("small.yaml").all


def test_a_rate_is_carried_by_copies():
    ask = dict(system="h100-hgx", gpus=8, input="8K", output=512, engine="vllm")
    result = shardline.plan("llama-3.1-8b", rate="180/min", **ask)
    assert result.met and result.question.requests_per_s == 3
    first = result.plans[0]
    assert first.copies.requests_per_s == 3 and first.copies.most_requests_per_s >= 3
    assert first.copies.count * first.point.gpus == first.copies.gpus <= 8
    busy = 3 * (first.point.ttft_s.value + 511 * first.point.tpot_s.value)
    assert first.copies.users == pytest.approx(busy, rel=1e-6)
    assert [p.point.plan for p in shardline.plan("llama-3.1-8b", rate=3, **ask).plans] == [
        p.point.plan for p in result.plans
    ]
    shared = shardline.plan("llama-3.1-8b", users=12, **ask).plans[0]
    assert shared.copies.users >= 12 and shared.copies.most_requests_per_s is None
