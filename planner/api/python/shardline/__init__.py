"""shardline: performance simulator and parallelism planner for long-context LLM serving.

>>> import pandas, shardline
>>> result = shardline.sweep("helix_gb200_1m", ttl="10 ms")
>>> pandas.DataFrame(result.frontier)

Functions and their arguments are the commands of ``shardline`` and their options, with underscores. They
return frozen dataclasses (``shardline.SweepResult``, ...), whose tables are Rows: sequences of dataclasses
with ``columns`` for NumPy and pandas. Faults of an input are raised as BadInput, with the place of each; that
no plan fits or meets a target is an answer (``met``, ``fits``). While a function computes, other Python
threads run, and Ctrl-C ends it.

Arguments of several functions:

    threads: how many compute; 0: all cores. Results do not depend on it.
    engine: who runs the plans: ``"vllm"``, ``"vllm 0.24.0"``, ``"ideal"``; "": as the scenario says.
    costs: ``"calibrated"`` or ``"parameters"``; "": as the scenario says.
    any_gpus: with an engine: also plans of part of a tray or node.
    any_context: with an engine: also requests longer than the model's maximum.
    set: keys in place of those of the system's file or the scenario, ``["device.memory.bandwidth=4 TB/s"]``; one
        may be a text alone.
    memory: what the question may need, ``"16 GB"`` or a number of bytes; one that needs more is refused
        before it starts. None: 80 % of the machine's, or of its control group's; ``math.inf``: any amount.
    progress: called as ``progress(done, total)``, of each model in turn, in the thread that asked.
    cancelled: asked now and then in that thread; where it returns true, Interrupted is raised.

Times are seconds, or texts with their unit: ``0.02``, ``"20 ms"``. All counts, of tokens, users, GPUs or requests,
are integers, or texts in which K, M and G are powers of two: ``32768``, ``"32K"``.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any, Callable, Dict, NamedTuple, Optional, Sequence, Union

from . import _arguments as _given
from . import _line, _results, _shardline
from ._errors import BadInput, Error, InternalError, Interrupted, NoPlan, of_argument
from ._results import *  # noqa: F403
from ._results import (
    CompareQuestion,
    CompareResult,
    ConversationResult,
    ExplainQuestion,
    ExplainResult,
    HandoffQuestion,
    HandoffResult,
    ListResult,
    PartitionQuestion,
    PartitionResult,
    PlanQuestion,
    PlanResult,
    ScenarioQuestion,
    ServeQuestion,
    ServeResult,
    SimulateQuestion,
    SimulateResult,
    SweepQuestion,
    SweepResult,
    ThresholdsQuestion,
    ThresholdsResult,
)
from ._tables import Columns, Rows

__version__: str = _shardline.__version__

__all__ = [
    "BadInput",
    "Columns",
    "Error",
    "InternalError",
    "Interrupted",
    "NoPlan",
    "Rows",
    "compare",
    "conversation",
    "data_folder",
    "explain",
    "handoff",
    "partition",
    "plan",
    "serve",
    "simulate",
    "sweep",
    "thresholds",
    *_results.__all__,
]

Path = Union[str, "os.PathLike[str]"]
Time = Union[float, str]
Count = Union[int, str]
Tokens = Union[int, str]
Rate = Union[float, str]
Size = Union[float, str]
Progress = Optional[Callable[[int, int], object]]
Cancelled = Optional[Callable[[], bool]]

_KNOB = 'as ["max_num_seqs=256"]'
_FAILURE = 'as ["0 at 60 s for 5 min"]'


@_given.known_names
def plan(
    model: Path,
    *,
    system: Path,
    input: Tokens,
    output: Optional[Tokens] = None,
    gpus: Optional[Count] = None,
    nodes: Optional[Count] = None,
    users: Optional[Count] = None,
    rate: Optional[Rate] = None,
    ttl: Optional[Time] = None,
    ttft: Optional[Time] = None,
    tokens_per_user: Optional[float] = None,
    read_as: Optional[str] = None,
    gpu_hour: Optional[float] = None,
    slo: str = "",
    trace: Optional[Path] = None,
    requests: Optional[Count] = None,
    lengths: str = "equal",
    router: str = "round_robin",
    seed: Count = 1,
    knob: Sequence[str] = (),
    pools: str = "any",
    threads: Count = 0,
    engine: str = "",
    costs: str = "",
    any_gpus: bool = False,
    any_context: bool = False,
    set: Sequence[str] = (),
    memory: Optional[Size] = None,
    progress: Progress = None,
    cancelled: Cancelled = None,
) -> PlanResult:
    """The plans around a target, without a scenario.

    Args:
        model: name of the catalogue, repository on Hugging Face, or path of a config.json or .yaml.
        system: name of the catalogue, or a .yaml file.
        input: tokens of a request.
        output: tokens of its answer; None: the prefill alone.
        gpus: at most, of all copies; None: those of a node, eight at most.
        nodes: at most, in place of ``gpus``.
        users: at once, each with a request, over all copies.
        rate: requests that come by time, over all copies: "5/s", "300/min", or a number of them a second.
        ttl: most time per token of an answer.
        ttft: most time to the first token.
        tokens_per_user: least tokens/s of a user, in place of ``ttl``.
        read_as: model_type to read a config.json as whose own is unknown (--as of the program).
        gpu_hour: price of a GPU for an hour, in your money: plans then have a cost.
        slo: targets by percentile, "ttft p99 2 s, tpot p99 40 ms": the fewest GPUs whose replicas keep them at
            ``rate`` or with ``trace``, request by request, in ``PlanResult.deployment``; ``plans`` is empty then.
        trace, requests, lengths, router, seed: of ``slo``, as of ``serve``.
        knob: of ``slo``: options of the engine, each of whose values is tried: ``["max_num_seqs=64,256"]``.
        pools: of ``slo``: "one" for prompts and answers, "two" with one for each, or "any": whichever needs fewer
            GPUs.

    The other arguments are those of ``help(shardline)``; without ``engine`` the one is taken that has most
    measured points of the model on the system (``PlanResult.engine_why``).

    Raises:
        BadInput: of an argument, or of a file that it names.
    """
    question = PlanQuestion(
        model=_given.path("model", model),
        system=_given.path("system", system),
        input_tokens=_given.tokens("input", input),
        output_tokens=_given.tokens_or_none("output", output),
        gpus=_given.whole_or_none("gpus", gpus),
        nodes=_given.whole_or_none("nodes", nodes),
        users=_given.whole_or_none("users", users),
        requests_per_s=_given.rate("rate", rate),
        most_ttl_s=_given.seconds("ttl", ttl),
        least_tokens_per_s_user=_given.positive("tokens_per_user", tokens_per_user),
        most_ttft_s=_given.seconds("ttft", ttft),
        read_as=_given.text_or_none("read_as", read_as),
        gpu_hour_price=_given.number("gpu_hour", gpu_hour),
        slo=_given.text("slo", slo),
        trace=_given.path_or_none("trace", trace),
        requests=_given.whole_or_none("requests", requests) or 0,
        lengths=_given.text("lengths", lengths),
        router=_given.text("router", router),
        seed=_given.whole("seed", seed),
        knobs=_given.texts("knob", knob, _KNOB),
        pools=_given.text("pools", pools),
    )
    return _shardline.plan(
        question,
        **_given.run_options(
            threads=threads,
            engine=engine,
            costs=costs,
            any_gpus=any_gpus,
            any_context=any_context,
            set=set,
            memory=memory,
            progress=progress,
            cancelled=cancelled,
        ),
    )


@_given.known_names
def sweep(
    scenario: Path = "",
    *,
    scenario_text: str = "",
    ttl: Optional[Time] = None,
    ttft: Optional[Time] = None,
    tokens_per_user: Optional[float] = None,
    users: Optional[Count] = None,
    exhaustive: bool = False,
    all: bool = False,
    threads: Count = 0,
    engine: str = "",
    costs: str = "",
    any_gpus: bool = False,
    any_context: bool = False,
    set: Sequence[str] = (),
    memory: Optional[Size] = None,
    progress: Progress = None,
    cancelled: Cancelled = None,
) -> SweepResult:
    """Every valid plan and batch of a scenario, and those that nothing beats.

    Args:
        scenario: name of a shipped scenario, or a file.
        scenario_text: the scenario itself, in YAML, in place of a file; ``scenario`` is then its name in
            messages.
        ttl: target for the time per token: TTL, or TPOT where a workload is served.
        ttft: target for the time to the first token, of prefills and workloads.
        tokens_per_user: target in tokens/s of a user, in place of ``ttl``.
        users: to serve at once, at least.
        exhaustive: simulate every feasible configuration, without pruning.
        all: and keep them, as ``all`` of the result.

    The other arguments are those of ``help(shardline)``.

    Raises:
        BadInput: of an argument, or of the scenario.
    """
    question = SweepQuestion(
        scenario=_given.path("scenario", scenario),
        scenario_text=_given.text("scenario_text", scenario_text),
        most_ttl_s=_given.seconds("ttl", ttl),
        least_tokens_per_s_user=_given.positive("tokens_per_user", tokens_per_user),
        most_ttft_s=_given.seconds("ttft", ttft),
        least_users=_given.whole_or_none("users", users),
        exhaustive=_given.flag("exhaustive", exhaustive) or _given.flag("all", all),
        keep_all=_given.flag("all", all),
    )
    return _shardline.sweep(
        question,
        **_given.run_options(
            threads=threads,
            engine=engine,
            costs=costs,
            any_gpus=any_gpus,
            any_context=any_context,
            set=set,
            memory=memory,
            progress=progress,
            cancelled=cancelled,
        ),
    )


@_given.known_names
def simulate(
    scenario: Path = "",
    *,
    plan: str,
    scenario_text: str = "",
    model: str = "",
    noise_seed: Optional[Count] = None,
    copies: Count = 1,
    engine: str = "",
    costs: str = "",
    any_gpus: bool = False,
    any_context: bool = False,
    set: Sequence[str] = (),
    memory: Optional[Size] = None,
    progress: Progress = None,
    cancelled: Cancelled = None,
) -> SimulateResult:
    """One plan: its time and what that consists of, its memory, how to start it.

    Args:
        scenario: name of a shipped scenario that sweeps, or a file.
        plan: its text, as ``PlanPoint.plan`` has it.
        scenario_text: as of ``sweep``; that of a PlanResult is one.
        model: which one of the scenario; "": the first.
        noise_seed: first seed of the traffic of others; None: the scenario's.
        copies: servers of the plan in launch files, which one script starts.

    The other arguments are those of ``help(shardline)``.

    Raises:
        BadInput: of an argument, or of the scenario. A plan that does not fit is an answer (``fits``).
    """
    question = SimulateQuestion(
        scenario=_given.path("scenario", scenario),
        scenario_text=_given.text("scenario_text", scenario_text),
        model=_given.text("model", model),
        plan=_given.text("plan", plan),
        noise_seed=_given.whole_or_none("noise_seed", noise_seed),
        copies=_given.whole("copies", copies),
    )
    return _shardline.simulate(
        question,
        **_given.run_options(
            engine=engine,
            costs=costs,
            any_gpus=any_gpus,
            any_context=any_context,
            set=set,
            memory=memory,
            progress=progress,
            cancelled=cancelled,
        ),
    )


_LINE = ("system", "input", "output", "gpus", "nodes", "users", "rate", "ttl", "ttft", "tokens_per_user", "read_as")
_RUN = ("engine", "costs", "any_gpus", "any_context", "set", "memory", "progress", "cancelled")


class _Asked(NamedTuple):
    """The scenario of ``explain`` or ``compare``, what is set beside it, plans of it, and whether the first meets a line."""

    scenario: Path
    scenario_text: str
    model: str
    set: Sequence[str]
    plans: Sequence[str]
    met: Optional[bool]


def _asked(call: Dict[str, Any], plans: Sequence[str], wanted: int) -> _Asked:
    """Of a call's arguments by their names; ``wanted`` plans of a line or an answer where none are named."""
    answer = _answer_of_line(call)
    if answer is None:
        if not plans:
            raise of_argument(
                "plan", "plan is required with a scenario, or a question of one line: model, system and input"
            )
        return _Asked(call["scenario"], call["scenario_text"], call["model"], call["set"], plans, None)
    beside = _line.settings_beside(answer.scenario_text)  # of a line the text has the others
    if answer is call["scenario"]:
        beside += _given.texts("set", call["set"], "of KEY=VALUE")
    if plans:
        return _Asked("", answer.scenario_text, "", beside, plans, None)
    best = _line.best_of(answer, wanted)
    texts = [_line.asked(planned.point) for planned in best]
    return _Asked("", answer.scenario_text, "", beside, texts, answer.met)


def _answer_of_line(call: Dict[str, Any]) -> Optional[PlanResult]:
    """What ``plan`` answers to a question of one line, or has answered; None: a scenario is asked."""
    scenario, given = call["scenario"], [name for name in _LINE if call[name] is not None and call[name] != ""]
    if isinstance(scenario, PlanResult):
        twice = [*given, *(name for name in ("scenario_text", "model") if call[name])]
        if twice:
            raise BadInput(f"{twice[0]}: the answer of plan has its question")
        return scenario
    if not given:
        return None
    if call["scenario_text"] or (scenario and call["model"]):
        raise BadInput("a question of one line names a model alone, without a scenario")
    for name in ("system", "input"):
        if name not in given:
            raise of_argument(
                name, f"{name} is missing: a question of one line has system and input, a scenario neither"
            )
    return plan(scenario or call["model"], **{name: call[name] for name in (*_LINE, *_RUN)})


@_given.known_names
def explain(
    scenario: Union[Path, PlanResult] = "",
    *,
    plan: str = "",
    scenario_text: str = "",
    model: str = "",
    system: Path = "",
    input: Optional[Tokens] = None,
    output: Optional[Tokens] = None,
    gpus: Optional[Count] = None,
    nodes: Optional[Count] = None,
    users: Optional[Count] = None,
    rate: Optional[Rate] = None,
    ttl: Optional[Time] = None,
    ttft: Optional[Time] = None,
    tokens_per_user: Optional[float] = None,
    read_as: Optional[str] = None,
    engine: str = "",
    costs: str = "",
    any_gpus: bool = False,
    any_context: bool = False,
    set: Sequence[str] = (),
    memory: Optional[Size] = None,
    progress: Progress = None,
    cancelled: Cancelled = None,
) -> ExplainResult:
    """Why a plan takes as long as it does: bottlenecks, elasticities, the next best plan, what to buy.

    The plan is one of a scenario, of the question of one line, or of an answer of ``plan``::

        explain("helix_gb200_1m", plan="helix:kvp=8,tpa=8,tpf=64,batch=4")
        explain("llama-3.1-70b", system="h200-hgx", gpus=8, input="32K", output="1K", ttl="20 ms")
        explain(plan(...))

    Args:
        scenario: name of a shipped scenario or a file; with ``system`` a model, as ``plan`` takes it; or what
            ``plan`` answered.
        plan: its text; of a line or an answer "": the best one.
        system, input, output, gpus, nodes, users, rate, ttl, ttft, tokens_per_user, read_as: of a line, as of
            ``plan``.

    The other arguments are those of ``simulate``.

    Raises:
        BadInput: of an argument, or of the scenario; of a line or an answer that has no plan. A plan that does
            not fit is an answer (``fits``).
    """
    asked = _asked(locals(), [plan] if plan else [], 1)
    question = ExplainQuestion(
        scenario=_given.path("scenario", asked.scenario),
        scenario_text=_given.text("scenario_text", asked.scenario_text),
        model=_given.text("model", asked.model),
        plan=_given.text("plan", asked.plans[0]),
    )
    result = _shardline.explain(
        question,
        **_given.run_options(
            engine=engine,
            costs=costs,
            any_gpus=any_gpus,
            any_context=any_context,
            set=asked.set,
            memory=memory,
            progress=progress,
            cancelled=cancelled,
        ),
    )
    return dataclasses.replace(result, met=asked.met)


@_given.known_names
def handoff(
    scenario: Path = "",
    *,
    prefill: str,
    decode: str,
    tokens: Optional[Tokens] = None,
    at_once: Count = 1,
    scenario_text: str = "",
    model: str = "",
    engine: str = "",
    costs: str = "",
    any_gpus: bool = False,
    any_context: bool = False,
    set: Sequence[str] = (),
    memory: Optional[Size] = None,
    progress: Progress = None,
    cancelled: Cancelled = None,
) -> HandoffResult:
    """A request's cache, from a plan that prefills to one that decodes: who sends what, and how long it takes.

    Args:
        prefill: text of the plan that prefills.
        decode: text of the plan that decodes.
        tokens: of the prompt; None: the workload's, or the scenario's longest.
        at_once: requests that are handed over together.

    The other arguments are those of ``simulate``.

    Raises:
        BadInput: of an argument, of the scenario, or of plans between which nothing can be handed over.
    """
    question = HandoffQuestion(
        scenario=_given.path("scenario", scenario),
        scenario_text=_given.text("scenario_text", scenario_text),
        model=_given.text("model", model),
        prefill=_given.text("prefill", prefill),
        decode=_given.text("decode", decode),
        tokens=_given.tokens_or_none("tokens", tokens) or 0,
        at_once=_given.whole("at_once", at_once),
    )
    return _shardline.handoff(
        question,
        **_given.run_options(
            engine=engine,
            costs=costs,
            any_gpus=any_gpus,
            any_context=any_context,
            set=set,
            memory=memory,
            progress=progress,
            cancelled=cancelled,
        ),
    )


@_given.known_names
def serve(
    scenario: Path = "",
    *,
    plan: str = "",
    scenario_text: str = "",
    model: Path = "",
    system: Path = "",
    input: Optional[Tokens] = None,
    output: Optional[Tokens] = None,
    gpus: Optional[Count] = None,
    nodes: Optional[Count] = None,
    ttl: Optional[Time] = None,
    ttft: Optional[Time] = None,
    tokens_per_user: Optional[float] = None,
    read_as: Optional[str] = None,
    rate: Optional[Rate] = None,
    users: Optional[Count] = None,
    think: Optional[Time] = None,
    path: Optional[Time] = None,
    trace: Optional[Path] = None,
    requests: Optional[Count] = None,
    slo: str = "",
    lengths: str = "equal",
    replicas: Count = 0,
    router: str = "round_robin",
    failure: Sequence[str] = (),
    seed: Count = 1,
    knob: Sequence[str] = (),
    prefill: str = "",
    prefill_system: Path = "",
    prefill_replicas: Count = 1,
    prefill_knob: Sequence[str] = (),
    max_local_prefill: Tokens = 0,
    engine: str = "",
    costs: str = "",
    any_gpus: bool = False,
    any_context: bool = False,
    set: Sequence[str] = (),
    memory: Optional[Size] = None,
    progress: Progress = None,
    cancelled: Cancelled = None,
) -> ServeResult:
    """Requests one by one on a plan: latencies by percentile, goodput, the largest rate that meets targets.

    Of a scenario and a plan of it, or without a scenario of a model on a system.

    Args:
        scenario: name of a shipped scenario that sweeps, or a file; "": ``model`` on ``system``.
        plan: its text; "", without a scenario: the best that ``plan`` finds for the same question.
        scenario_text: as of ``sweep``; that of a PlanResult is one.
        model: which one of the scenario, "": the first; without a scenario as of ``plan``.
        system, gpus, nodes, ttl, ttft, tokens_per_user, read_as: without a scenario, as of ``plan``.
        input, output: tokens of a made-up request and of its answer; None: the scenario's workload.
        rate: requests that come by time: "5/s", "300/min"; with a trace at that mean rate.
        users: of a closed loop, in place of a rate.
        think: mean time between an answer and the next request of each user; None: none, and all begin at once.
        path: time from a client to the engine and back; None: that of the engine's server.
        trace: recorded requests: Mooncake's JSON lines, Azure's CSV, or CSV with arrival_s, input_tokens and
            output_tokens.
        requests: at most; None: 2000, ten of each user, all of a trace.
        slo: targets, "ttft p99 2 s, tpot p99 40 ms"; without a rate, users or a trace the largest rate that
            meets them is sought.
        lengths: "equal", or "drawn": from 80 to 100 % of input and output.
        replicas: copies of the plan; 0: one of a plan that is named, else as many as the line's answer starts.
        router: which replica a request goes to: "round_robin", "least_requests", "least_kv" or "prefix".
        failure: replicas that die, ``["0 at 60 s for 5 min"]``; without ``for`` they do not come back.
        seed: of arrivals and lengths.
        knob: options of the engine, ``["max_num_seqs=256"]``.
        prefill: plan of a pool of its own for prompts, under vLLM: ``plan`` then decodes what that one hands over.
        prefill_system: system that it is on; "": the one that ``plan`` is on.
        prefill_replicas, prefill_knob: of that pool.
        max_local_prefill: tokens of prompts at most that ``plan`` computes itself; 0: none.

    The other arguments are those of ``help(shardline)``; without ``engine`` vLLM runs a model on a system.

    Raises:
        BadInput: of an argument, or of a file that it names. Targets that are missed are an answer (``met``).
    """
    question = ServeQuestion(
        scenario=_given.path("scenario", scenario),
        scenario_text=_given.text("scenario_text", scenario_text),
        model=_given.path("model", model),
        system=_given.path("system", system),
        gpus=_given.whole_or_none("gpus", gpus),
        nodes=_given.whole_or_none("nodes", nodes),
        read_as=_given.text_or_none("read_as", read_as),
        most_ttl_s=_given.seconds("ttl", ttl),
        least_tokens_per_s_user=_given.positive("tokens_per_user", tokens_per_user),
        most_ttft_s=_given.seconds("ttft", ttft),
        plan=_given.text("plan", plan),
        trace=_given.path_or_none("trace", trace),
        input_tokens=_given.tokens_or_none("input", input) or 0,
        output_tokens=_given.tokens_or_none("output", output) or 0,
        lengths=_given.text("lengths", lengths),
        requests_per_s=_given.rate("rate", rate),
        users=_given.whole_or_none("users", users),
        think_s=_given.seconds("think", think),
        path_s=_given.seconds("path", path),
        requests=_given.whole_or_none("requests", requests) or 0,
        slo=_given.text("slo", slo),
        replicas=_given.whole("replicas", replicas),
        router=_given.text("router", router),
        failures=_given.texts("failure", failure, _FAILURE),
        seed=_given.whole("seed", seed),
        knobs=_given.texts("knob", knob, _KNOB),
        prefill=_given.text("prefill", prefill),
        prefill_system=_given.path("prefill_system", prefill_system),
        prefill_replicas=_given.whole("prefill_replicas", prefill_replicas),
        prefill_knobs=_given.texts("prefill_knob", prefill_knob, _KNOB),
        max_local_prefill=_given.tokens_or_none("max_local_prefill", max_local_prefill) or 0,
    )
    return _shardline.serve(
        question,
        **_given.run_options(
            engine=engine,
            costs=costs,
            any_gpus=any_gpus,
            any_context=any_context,
            set=set,
            memory=memory,
            progress=progress,
            cancelled=cancelled,
        ),
    )


@_given.known_names
def compare(
    scenario: Union[Path, PlanResult] = "",
    *,
    plan: Sequence[str] = (),
    scenario_text: str = "",
    model: str = "",
    system: Path = "",
    input: Optional[Tokens] = None,
    output: Optional[Tokens] = None,
    gpus: Optional[Count] = None,
    nodes: Optional[Count] = None,
    users: Optional[Count] = None,
    rate: Optional[Rate] = None,
    ttl: Optional[Time] = None,
    ttft: Optional[Time] = None,
    tokens_per_user: Optional[float] = None,
    read_as: Optional[str] = None,
    engine: str = "",
    costs: str = "",
    any_gpus: bool = False,
    any_context: bool = False,
    set: Sequence[str] = (),
    memory: Optional[Size] = None,
    progress: Progress = None,
    cancelled: Cancelled = None,
) -> CompareResult:
    """Two plans side by side, and whether prices tell them apart.

    Args:
        plan: the texts of both; of a line or an answer (): the best two that shard in different ways.

    The other arguments are those of ``explain``.

    Raises:
        BadInput: of an argument, or of the scenario; of a line or an answer that has no two plans. A plan that
            does not fit is an answer (``fits``).
    """
    if isinstance(plan, str):
        raise of_argument("plan", f"plan {plan!r}: expected the texts of two plans")
    asked = _asked(locals(), _given.texts("plan", plan, "of two plans"), 2)
    question = CompareQuestion(
        scenario=_given.path("scenario", asked.scenario),
        scenario_text=_given.text("scenario_text", asked.scenario_text),
        model=_given.text("model", asked.model),
        plans=tuple(asked.plans),
    )
    result = _shardline.compare(
        question,
        **_given.run_options(
            engine=engine,
            costs=costs,
            any_gpus=any_gpus,
            any_context=any_context,
            set=asked.set,
            memory=memory,
            progress=progress,
            cancelled=cancelled,
        ),
    )
    return dataclasses.replace(result, met=asked.met)


@_given.known_names
def thresholds(
    scenario: Path = "",
    *,
    scenario_text: str = "",
    trace: Optional[Path] = None,
    rate: Optional[Rate] = None,
    load: Optional[float] = None,
    chunk: Optional[Tokens] = None,
    requests: Optional[Count] = None,
    threads: Count = 0,
    costs: str = "",
    set: Sequence[str] = (),
    memory: Optional[Size] = None,
    progress: Progress = None,
    cancelled: Cancelled = None,
) -> ThresholdsResult:
    """When ring attention should pass KV blocks and when Q blocks, of a scenario with thresholds.

    Arguments are those of ``sweep``, and:

    Args:
        trace: recorded requests, whose prompts a replica of each ring prefills in the order in which they come;
            the result says what each rule loses there.
        rate: of them, that come to each replica: "2/s"; without it as ``load`` says.
        load: part of the time that their prefills take, below 1; without it 0.7.
        chunk: tokens of a prompt that a step computes, at most; without it 8192.
        requests: of the trace, at most.

    Raises:
        BadInput: of an argument, of the scenario or of the trace.
    """
    question = ThresholdsQuestion(
        scenario=_given.path("scenario", scenario),
        scenario_text=_given.text("scenario_text", scenario_text),
        trace=_given.path_or_none("trace", trace),
        requests_per_s=_given.rate("rate", rate),
        load=_given.positive("load", load),
        chunk_tokens=_given.tokens_or_none("chunk", chunk) or 0,
        requests=_given.whole_or_none("requests", requests) or 0,
    )
    return _shardline.thresholds(
        question,
        **_given.run_options(
            threads=threads, costs=costs, set=set, memory=memory, progress=progress, cancelled=cancelled
        ),
    )


@_given.known_names
def partition(
    scenario: Path = "",
    *,
    scenario_text: str = "",
    spacing: Optional[Tokens] = None,
    max_loss: Optional[float] = None,
    granularity: Optional[Count] = None,
    threads: Count = 0,
    set: Sequence[str] = (),
    memory: Optional[Size] = None,
    progress: Progress = None,
    cancelled: Cancelled = None,
) -> PartitionResult:
    """How many tokens each rank of a KV-Runahead chain takes, of a scenario with a partition.

    Args:
        spacing: tokens between rows of the lookup table; None: the scenario's.
        max_loss: by interpolation, 0.01 is 1 %; None: the scenario's.
        granularity: tokens; boundaries are multiples of it; None: the scenario's.

    The other arguments are those of ``sweep``.

    Raises:
        BadInput: of an argument, or of the scenario.
    """
    question = PartitionQuestion(
        scenario=_given.path("scenario", scenario),
        scenario_text=_given.text("scenario_text", scenario_text),
        spacing_tokens=_given.tokens_or_none("spacing", spacing),
        max_loss=_given.number("max_loss", max_loss),
        granularity_tokens=_given.whole_or_none("granularity", granularity),
    )
    return _shardline.partition(
        question,
        **_given.run_options(threads=threads, set=set, memory=memory, progress=progress, cancelled=cancelled),
    )


@_given.known_names
def conversation(
    scenario: Path = "",
    *,
    scenario_text: str = "",
    costs: str = "",
    set: Sequence[str] = (),
    memory: Optional[Size] = None,
    progress: Progress = None,
    cancelled: Cancelled = None,
) -> ConversationResult:
    """Every turn of a scenario with a conversation. Arguments are those of ``sweep``.

    Raises:
        BadInput: of an argument, or of the scenario.
    """
    question = ScenarioQuestion(
        scenario=_given.path("scenario", scenario), scenario_text=_given.text("scenario_text", scenario_text)
    )
    return _shardline.conversation(
        question,
        **_given.run_options(costs=costs, set=set, memory=memory, progress=progress, cancelled=cancelled),
    )


def data_folder() -> str:
    """Where models, systems, engines and scenarios are read from: SHARDLINE_DATA, else above the library."""
    return _shardline.data_folder()


def list(what: str) -> ListResult:
    """What there is: ``models``, ``systems``, ``strategies``, ``options`` (of plans), ``scenarios`` or
    ``acceptance`` (published curves of accepted drafts).

    ``from shardline import *`` leaves it out, for it would hide Python's own ``list``.

    Raises:
        BadInput: of another word.
    """
    return _shardline.list(_given.text("what", what))
