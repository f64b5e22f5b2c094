"""The question of one line behind `explain` and `compare`: its scenario, and the best plans of its answer, as the
commands of that name take them."""

from __future__ import annotations

import re
import shlex
from typing import List, Sequence, Tuple

from . import _shardline
from ._errors import BadInput
from ._results import PlannedPlan, PlanPoint, PlanResult

_BESIDE = re.compile(r"(?m)^# Not in it, to be given to commands that read it:(.*)$")


def settings_beside(scenario_text: str) -> List[str]:
    """What was set of the system's file, for which a scenario has no keys: it stands in a comment of the text."""
    found = _BESIDE.search(scenario_text)
    words = shlex.split(found.group(1)) if found else []
    return [value for option, value in zip(words, words[1:]) if option == "--set"]


def asked(point: PlanPoint) -> str:
    """The plan's text with all of its users: those who wait are not in the batch that runs."""
    run = point.requests - point.waiting
    if point.waiting == 0 or run == 0:
        return point.plan
    return re.sub(r"\bbatch=\d+", f"batch={point.batch * point.requests // run}", point.plan)


def best_of(answer: PlanResult, wanted: int) -> Tuple[PlannedPlan, ...]:
    """The first plan, and of several others that shard in another way; other batches only where there is no such."""
    first: List[PlannedPlan] = []
    rest: List[PlannedPlan] = []
    seen = set()
    for planned in answer.plans:
        sharding = _shardline.sharding(planned.point.plan)
        (rest if sharding in seen else first).append(planned)
        seen.add(sharding)
    found = (first + rest)[:wanted]
    if len(found) < wanted:
        raise BadInput(
            f"the question has {len(found)} plan{'' if len(found) == 1 else 's'}, and "
            f"{'one is' if wanted == 1 else 'two are'} wanted\nplan(), with the same arguments, says why and what is nearest"
        )
    return tuple(found)
