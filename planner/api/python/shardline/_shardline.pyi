# The native module. Users call shardline's own functions, whose arguments become these questions.
from typing import Any, Callable, Dict, Optional, Sequence

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

__version__: str

class Table:
    def __len__(self) -> int: ...
    def row(self, index: int) -> Any: ...
    def columns(self) -> Dict[str, Any]: ...

def plan(
    question: PlanQuestion,
    *,
    threads: int = 0,
    engine: str = "",
    costs: str = "",
    any_gpus: bool = False,
    any_context: bool = False,
    set: Sequence[str] = ...,
    memory: float = 0,
    progress: Optional[Callable[[int, int], object]] = None,
    cancelled: Optional[Callable[[], bool]] = None,
) -> PlanResult: ...
def sweep(
    question: SweepQuestion,
    *,
    threads: int = 0,
    engine: str = "",
    costs: str = "",
    any_gpus: bool = False,
    any_context: bool = False,
    set: Sequence[str] = ...,
    memory: float = 0,
    progress: Optional[Callable[[int, int], object]] = None,
    cancelled: Optional[Callable[[], bool]] = None,
) -> SweepResult: ...
def simulate(
    question: SimulateQuestion,
    *,
    threads: int = 0,
    engine: str = "",
    costs: str = "",
    any_gpus: bool = False,
    any_context: bool = False,
    set: Sequence[str] = ...,
    memory: float = 0,
    progress: Optional[Callable[[int, int], object]] = None,
    cancelled: Optional[Callable[[], bool]] = None,
) -> SimulateResult: ...
def explain(
    question: ExplainQuestion,
    *,
    threads: int = 0,
    engine: str = "",
    costs: str = "",
    any_gpus: bool = False,
    any_context: bool = False,
    set: Sequence[str] = ...,
    memory: float = 0,
    progress: Optional[Callable[[int, int], object]] = None,
    cancelled: Optional[Callable[[], bool]] = None,
) -> ExplainResult: ...
def compare(
    question: CompareQuestion,
    *,
    threads: int = 0,
    engine: str = "",
    costs: str = "",
    any_gpus: bool = False,
    any_context: bool = False,
    set: Sequence[str] = ...,
    memory: float = 0,
    progress: Optional[Callable[[int, int], object]] = None,
    cancelled: Optional[Callable[[], bool]] = None,
) -> CompareResult: ...
def handoff(
    question: HandoffQuestion,
    *,
    threads: int = 0,
    engine: str = "",
    costs: str = "",
    any_gpus: bool = False,
    any_context: bool = False,
    set: Sequence[str] = ...,
    memory: float = 0,
    progress: Optional[Callable[[int, int], object]] = None,
    cancelled: Optional[Callable[[], bool]] = None,
) -> HandoffResult: ...
def serve(
    question: ServeQuestion,
    *,
    threads: int = 0,
    engine: str = "",
    costs: str = "",
    any_gpus: bool = False,
    any_context: bool = False,
    set: Sequence[str] = ...,
    memory: float = 0,
    progress: Optional[Callable[[int, int], object]] = None,
    cancelled: Optional[Callable[[], bool]] = None,
) -> ServeResult: ...
def thresholds(
    question: ThresholdsQuestion,
    *,
    threads: int = 0,
    engine: str = "",
    costs: str = "",
    any_gpus: bool = False,
    any_context: bool = False,
    set: Sequence[str] = ...,
    memory: float = 0,
    progress: Optional[Callable[[int, int], object]] = None,
    cancelled: Optional[Callable[[], bool]] = None,
) -> ThresholdsResult: ...
def partition(
    question: PartitionQuestion,
    *,
    threads: int = 0,
    engine: str = "",
    costs: str = "",
    any_gpus: bool = False,
    any_context: bool = False,
    set: Sequence[str] = ...,
    memory: float = 0,
    progress: Optional[Callable[[int, int], object]] = None,
    cancelled: Optional[Callable[[], bool]] = None,
) -> PartitionResult: ...
def conversation(
    question: ScenarioQuestion,
    *,
    threads: int = 0,
    engine: str = "",
    costs: str = "",
    any_gpus: bool = False,
    any_context: bool = False,
    set: Sequence[str] = ...,
    memory: float = 0,
    progress: Optional[Callable[[int, int], object]] = None,
    cancelled: Optional[Callable[[], bool]] = None,
) -> ConversationResult: ...
def list(what: str) -> ListResult: ...
def seconds(name: str, text: str) -> float: ...
def bytes(name: str, text: str) -> float: ...
def tokens(name: str, text: str) -> int: ...
def count(name: str, text: str) -> int: ...
def rate(name: str, text: str) -> float: ...
def meant_option(found: str, options: Sequence[str]) -> str: ...
def sharding(plan: str) -> str: ...
def machine_memory() -> float: ...
def data_folder() -> str: ...
