"""Rows of results, one by one and as columns."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Dict, Generic, Iterator, Optional, Sequence, Tuple, TypeVar, Union
from typing import overload

if TYPE_CHECKING:
    import numpy as np

    from ._results import Miss, ModelSweep

Row = TypeVar("Row")
_Sweep = TypeVar("_Sweep", bound="SweepTables")
_Plan = TypeVar("_Plan", bound="PlanTables")


class Columns(Dict[str, "np.ndarray[Any, Any]"]):
    """A table by its columns: name to NumPy array, all of one length, as ``pandas.DataFrame`` takes it.

    An estimate is three columns: ``ttl_s``, ``ttl_s_low``, ``ttl_s_high``; a struct those of its fields:
    ``degrees.pp``. What is null is nan among numbers and empty among texts; a column that can be null has no
    type but float or text. Arrays of numbers are read-only views of C++ memory, which they keep alive.
    """

    def __repr__(self) -> str:
        rows = len(next(iter(self.values()))) if self else 0
        return f"<Columns of {rows} rows: {', '.join(self)}>"


class _Kept:
    """Rows and columns that Python itself holds: what an unpickled table is."""

    def __init__(self, rows: Tuple[Any, ...], columns: Optional[Dict[str, Any]]) -> None:
        self._rows = rows
        self._columns = columns

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, index: int) -> Any:
        return self._rows[index]

    def columns(self) -> Dict[str, Any]:
        if self._columns is None:
            raise ModuleNotFoundError("no columns: NumPy was not there where these rows were pickled", name="numpy")
        return self._columns


class Rows(Sequence[Row], Generic[Row]):
    """Rows of a table: a sequence of dataclasses, made when they are asked for, and ``columns``."""

    __slots__ = ("_table", "_columns")

    def __init__(self, table: Any) -> None:
        self._table = table
        self._columns: Optional[Columns] = None

    @property
    def columns(self) -> Columns:
        """The same as columns, for NumPy and ``pandas.DataFrame``."""
        if self._columns is None:
            self._columns = Columns(self._table.columns())
        return self._columns

    def __len__(self) -> int:
        return len(self._table)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Tuple[Row, ...]: ...
    def __getitem__(self, index: Union[int, slice]) -> Union[Row, Tuple[Row, ...]]:
        if isinstance(index, slice):
            return tuple(self._table.row(i) for i in range(*index.indices(len(self))))
        index = operator.index(index)
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"row {index} of {len(self)}")
        row: Row = self._table.row(at)
        return row

    def __iter__(self) -> Iterator[Row]:
        return (self._table.row(i) for i in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rows):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other))

    __hash__ = None  # type: ignore[assignment]

    def __deepcopy__(self, memo: Any) -> "Rows[Row]":
        return self  # nothing in it changes

    def __reduce__(self) -> Tuple[Any, ...]:
        columns: Optional[Dict[str, Any]] = None
        try:
            columns = dict(self.columns)
        except ModuleNotFoundError:  # without NumPy there are rows alone
            pass
        return (_unpickled, (tuple(self), columns))

    def __repr__(self) -> str:
        return f"<Rows of {len(self)}{' ' + type(self[0]).__name__ if self else ''}>"


def _unpickled(rows: Tuple[Any, ...], columns: Optional[Dict[str, Any]]) -> "Rows[Any]":
    return Rows(_Kept(rows, columns))


def _time(seconds: float) -> str:
    """"8.54 ms": three digits in the unit in which they stand before the point."""
    for unit, of_it in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= of_it:
            return f"{seconds / of_it:.3g} {unit}"
    return f"{seconds:.3g} s"


def _excess(part: float) -> str:
    """As the program says it: "+9 %", or "8,539 times as much" where a percentage says nothing."""
    return f"{100 * part:+.0f} %" if part < 100 else f"{1 + part:,.0f} times as much"


def _joined(tables: Sequence[Tuple[str, Dict[str, Any]]]) -> Columns:
    """Tables of the same columns below one another, with the name of each in a first column."""
    import numpy as np

    out = Columns()
    counts = [len(next(iter(columns.values()))) for _, columns in tables]
    names = np.empty(sum(counts), dtype=object)
    names[:] = [name for (name, _), count in zip(tables, counts) for _ in range(count)]
    out["model"] = names
    for key in tables[0][1] if tables else ():
        parts = [columns[key] for _, columns in tables]
        out[key] = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return out


def _frontier(model: "ModelSweep") -> Dict[str, Any]:
    columns = model.frontier.columns
    return {name[len("point.") :] if name.startswith("point.") else name: columns[name] for name in columns}


class _Tables:
    """Rows of all models of an answer in one table, with the name of each in a first column ``model``.

    Of one model the columns of numbers are views of C++ memory, else copies.
    """

    def _models(self) -> Sequence["ModelSweep"]:
        raise NotImplementedError

    @property
    def frontier(self) -> Columns:
        """Plans that no other beats on both axes: ``pandas.DataFrame(result.frontier)``.

        ``model``, the columns of a PlanPoint, and ``maybe_better``: other strategies that may be ahead, as
        prices may be off.
        """
        return _joined([(m.setting.model, _frontier(m)) for m in self._models()])

    @property
    def points(self) -> Columns:
        """Each strategy's own frontier, the rows of ``frontier.csv``; see ``on_frontier`` of a PlanPoint."""
        return _joined([(m.setting.model, m.points.columns) for m in self._models()])

    @property
    def all(self) -> Columns:
        """Every configuration, of a sweep that was asked to keep them (``all=True``)."""
        tables = [(m.setting.model, m.all.columns) for m in self._models() if m.all is not None]
        if not tables:
            raise ValueError("no configurations were kept: ask sweep() with all=True")
        return _joined(tables)


class SweepTables(_Tables):
    """What a SweepResult has beside its fields."""

    if TYPE_CHECKING:
        scenario: str
        met: bool
        models: Tuple[ModelSweep, ...]

    def _models(self) -> Sequence["ModelSweep"]:
        return self.models

    def check(self: _Sweep) -> _Sweep:
        """The result itself. Raises NoPlan where it is not ``met``."""
        from ._errors import NoPlan

        if not self.met:
            raise NoPlan(f"{self.scenario}: no plan fits and meets the target")
        return self


class PlanTables(_Tables):
    """What a PlanResult has beside its fields."""

    if TYPE_CHECKING:
        title: str
        met: bool
        miss: Optional[Miss]
        sweep: ModelSweep

    def _models(self) -> Sequence["ModelSweep"]:
        return (self.sweep,)

    def check(self: _Plan) -> _Plan:
        """The result itself. Raises NoPlan, which names the nearest plan's miss, where it is not ``met``."""
        from ._errors import NoPlan

        if self.met:
            return self
        miss = self.miss
        nearest = f"; the nearest: {miss.what} {_time(miss.time_s)} ({_excess(miss.part)})" if miss else ""
        raise NoPlan(f"{self.title}: no plan fits and meets the target{nearest}")
