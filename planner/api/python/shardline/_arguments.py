"""Arguments of a call as the library takes them. What is of another type raises TypeError by the argument's name."""

from __future__ import annotations

import functools
import itertools
import operator
import os
import re
from typing import Any, Callable, Dict, Mapping, NoReturn, Optional, Sequence, Tuple, TypeVar, cast

from . import _shardline
from ._errors import of_argument


# What is shown of a value, and how many texts there may be of an argument.
_SHOWN, _MOST = 200, 10_000


def _wrong(name: str, expected: str, value: object) -> NoReturn:
    found = repr(value)
    shown = found if len(found) <= _SHOWN else f"{found[:_SHOWN]}... ({len(found)} characters)"
    raise TypeError(f"{name}: expected {expected}, found {shown}")


_Function = TypeVar("_Function", bound=Callable[..., Any])

# An option in a sentence, perhaps with its value: --knob max_num_seqs=64, --plan tensor:tpa=8,tpf=8.
_OPTION = re.compile(
    r"""--(?P<name>[a-z][a-z-]*)
    (?:\ (?P<value>'[^']*' | (?:[a-z_]+:)?[a-z_.]+=(?:"[^"]*" | \[[^\]]*\] | [^\s():]+)))?""",
    re.VERBOSE,
)


def _as_argument(option: "re.Match[str]") -> str:
    """The same as an argument of Python; quotes inside of a value are the shell's."""
    name, value = option["name"].replace("-", "_"), option["value"]
    if value is None:
        return name
    bare = value.replace("'", "").replace('"', "")
    return f'{name}="{bare}"'


def known_names(function: _Function) -> _Function:
    """Of a keyword that the function has not, the name that it has for it is said, as the command line says it."""
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    known = frozenset(names)

    @functools.wraps(function)
    def called(*args: Any, **given: Any) -> Any:
        if not known.issuperset(given):
            raise TypeError("\n".join(_unknown(function.__name__, word, names) for word in given if word not in known))
        if len(args) > code.co_argcount:
            also = f"{names[code.co_argcount]}={args[code.co_argcount]!r}"
            raise TypeError(f"{function.__name__}() takes {names[0]} alone without its name, others as {also}")
        return function(*args, **given)

    return cast(_Function, called)


def _unknown(function: str, word: str, names: Sequence[str]) -> str:
    options = ["--" + name.replace("_", "-") for name in names]
    meant = _shardline.meant_option("--" + word.replace("_", "-"), options)
    if meant.startswith("its name"):
        meant = _OPTION.sub(_as_argument, meant).replace("MODEL", "model")
    else:  # names alone, without two hyphens
        meant = meant.replace("-", "_")
    return f"{function}() has no argument {word}: {meant}"


def _is_number(value: object) -> bool:
    """Python's and NumPy's; of truth values only that they are none."""
    return not isinstance(value, (str, bytes, bytearray, bool)) and hasattr(value, "__float__")


def whole(name: str, value: Any) -> int:
    """A count: an integer, or a text as the command line takes it."""
    if isinstance(value, str):
        return _shardline.count(name, value)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        _wrong(name, 'a whole number, or a text as "1K"', value)
    return _of_64_bits(name, operator.index(value))


def _of_64_bits(name: str, value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise of_argument(name, f"{name} {value}: expected a number of 64 bits")
    return value


def whole_or_none(name: str, value: Any) -> Optional[int]:
    return None if value is None else whole(name, value)


def number(name: str, value: Any, expected: str = "a number") -> Optional[float]:
    if value is None:
        return None
    if not _is_number(value):
        _wrong(name, expected, value)
    return float(value)


def text(name: str, value: Any, expected: str = "a text") -> str:
    if not isinstance(value, str):
        _wrong(name, expected, value)
    return value


def text_or_none(name: str, value: Any) -> Optional[str]:
    return None if value is None else text(name, value)


def texts(name: str, value: Any, expected: str) -> Tuple[str, ...]:
    """One text is taken for a sequence of it."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, Mapping):
        _wrong(name, f"texts, {expected}", value)
    try:
        items = tuple(itertools.islice(value, _MOST + 1))
    except TypeError:
        _wrong(name, f"texts, {expected}", value)
    if len(items) > _MOST:
        raise of_argument(name, f"{name}: more than {_MOST} texts")
    return tuple(text(name, item, f"texts, {expected}") for item in items)


def path(name: str, value: Any) -> str:
    try:
        found = os.fspath(value)
    except TypeError:
        _wrong(name, "a name or a path", value)
    return text(name, found, "a name or a path")


def path_or_none(name: str, value: Any) -> Optional[str]:
    return None if value is None else path(name, value)


def flag(name: str, value: Any) -> bool:
    if isinstance(value, str) or value not in (True, False):
        _wrong(name, "True or False", value)
    return bool(value)


def seconds(name: str, value: Any) -> Optional[float]:
    if isinstance(value, str):
        return _shardline.seconds(name, value)
    return number(name, value, 'a time in seconds, or with its unit as "20 ms"')


def tokens(name: str, value: Any) -> int:
    if isinstance(value, str):
        return _shardline.tokens(name, value)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        _wrong(name, 'a whole number of tokens, or a text as "32K"', value)
    return _of_64_bits(name, operator.index(value))


def tokens_or_none(name: str, value: Any) -> Optional[int]:
    return None if value is None else tokens(name, value)


def rate(name: str, value: Any) -> Optional[float]:
    if isinstance(value, str):
        return _shardline.rate(name, value)
    return number(name, value, 'requests a second, or by time as "300/min"')


def size(name: str, value: Any) -> float:
    if value is None:  # as on the command line; 0 where nothing says what the machine has: any amount
        return 0.8 * _shardline.machine_memory()
    if isinstance(value, str):
        return _shardline.bytes(name, value)
    bytes_ = number(name, value, 'a number of bytes, or a text as "16 GB"')
    if bytes_ is None or not bytes_ > 0:
        raise of_argument(name, f"{name} {value}: expected a positive size")
    return bytes_


def positive(name: str, value: Any) -> Optional[float]:
    found = number(name, value)
    if found is not None and not found > 0:
        raise of_argument(name, f"{name} {value}: expected a positive number")
    return found


def run_options(
    *,
    threads: Any = 0,
    engine: Any = "",
    costs: Any = "",
    any_gpus: Any = False,
    any_context: Any = False,
    set: Sequence[str] = (),
    memory: Any = None,
    progress: Any = None,
    cancelled: Any = None,
) -> Dict[str, Any]:
    """Those of any question, by the names that the native functions have for them."""
    for name, function in (("progress", progress), ("cancelled", cancelled)):
        if function is not None and not callable(function):
            _wrong(name, "a function", function)
    return dict(
        threads=whole("threads", threads),
        engine=text("engine", engine, 'a text as "vllm"'),
        costs=text("costs", costs, '"calibrated" or "parameters"'),
        any_gpus=flag("any_gpus", any_gpus),
        any_context=flag("any_context", any_context),
        set=texts("set", set, 'as ["device.memory.bandwidth=4 TB/s"]'),
        memory=size("memory", memory),
        progress=progress,
        cancelled=cancelled,
    )
