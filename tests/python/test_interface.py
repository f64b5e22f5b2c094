"""Names, types and docstrings: those of the program, of each other, and checked by mypy."""

import ast
import dataclasses
import importlib.util
import inspect
import keyword
import pathlib
import re
import subprocess
import sys

import pytest

import shardline
from shardline import _results, _shardline

FUNCTIONS = ["plan", "sweep", "simulate", "explain", "compare", "handoff", "serve", "thresholds", "partition", "conversation"]
PACKAGE = pathlib.Path(shardline.__file__).parent

# What a program has and a function has not: where output goes and what it looks like. Of Python alone: a
# scenario as text, and functions that are called meanwhile. `as` is a keyword there.
OF_THE_PROGRAM = {"help", "out", "json", "verbose", "save"}
OF_PYTHON = {"scenario_text", "progress", "cancelled"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arguments_are_those_of_the_command(program, name):
    text = program.run(name, "--help").stdout
    options = set(re.findall(r"(?m)^  (?:-\w,)?(?:--[a-z-]+,)?--([a-z-]+)", text)) - OF_THE_PROGRAM
    options = {"read-as" if word == "as" else word for word in options}
    positional = re.findall(r"(?m)^  ([a-z]+)[ ,]", text.split("Positionals:")[1].split("\nOptions:")[0])
    expected = {word.replace("-", "_") for word in [*options, *positional]}
    assert set(inspect.signature(getattr(shardline, name)).parameters) - OF_PYTHON == expected


def test_everything_public_has_a_docstring():
    for name in [*shardline.__all__, "list"]:
        assert inspect.getdoc(getattr(shardline, name)), name
    assert "DataFrame" in shardline.__doc__ and not any(name.startswith("_") for name in shardline.__all__)


def test_every_field_is_explained():
    for name in _results.__all__:
        of = getattr(shardline, name)
        for field in dataclasses.fields(of):
            assert re.search(rf"(?m)^ +{field.name}: \S", of.__doc__), f"{name}.{field.name}"


def test_no_field_is_a_keyword():
    for name in _results.__all__:
        assert not any(keyword.iskeyword(f.name) for f in dataclasses.fields(getattr(shardline, name)))


def test_stubs_name_what_the_native_module_has():
    tree = ast.parse((PACKAGE / "_shardline.pyi").read_text())
    stubs = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    native = {name for name in dir(_shardline) if not name.startswith("_")}
    assert stubs == native
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            arguments = [a.arg for a in [*node.args.args, *node.args.kwonlyargs]]
            # pybind11 says in the first line of its docstrings what a function takes.
            head = getattr(_shardline, node.name).__doc__.splitlines()[0]
            assert arguments == re.findall(r"(\w+): ", head.split(" -> ")[0]), node.name
    assert (PACKAGE / "py.typed").exists()


USER = """
import shardline

result: shardline.SweepResult = shardline.sweep("small.yaml", ttl="20 ms", users=4)
time: float = result.models[0].points[0].memory_bytes_per_gpu
plans: str = result.check().models[0].frontier[0].point.plan
best = shardline.plan("llama-3.1-8b", system="h100-hgx", input="8K", ttl=0.02).check().best
counted = shardline.plan("llama-3.1-8b", system="h100-hgx", input="8K", output=512, users="1K", gpus="8")
share: float = best.breakdown.time_s if best is not None else 0.0
"""
WRONG = [
    'shardline.sweep("a", ttll=1)',
    "x: int = result.scenario",
    'shardline.plan("a")',
    'shardline.plan("a", system="b", input=1, gpus=2.5)',
    "shardline.sweep(3)",
]


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="no mypy here")
def test_types_are_right(tmp_path):
    def mypy(*arguments):
        cache = ["--cache-dir", str(tmp_path / "cache")]
        return subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", *cache, *arguments],
            capture_output=True,
            text=True,
            cwd=PACKAGE.parent,
        )

    checked = mypy("-p", "shardline")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    user = tmp_path / "user.py"
    user.write_text(USER)
    right = mypy(str(user))
    assert right.returncode == 0, right.stdout + right.stderr
    user.write_text(USER + "\n".join(WRONG) + "\n")
    wrong = mypy(str(user)).stdout
    first = USER.count("\n") + 1
    for line in range(first, first + len(WRONG)):
        assert f"user.py:{line}: error" in wrong, f"mypy takes {WRONG[line - first]}\n{wrong}"
