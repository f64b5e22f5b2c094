"""What the tests of the Python module share: the program beside it, and the scenarios of tests/golden."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the scenarios of tests/golden, where tests run, for files name others beside them."""
    for scenario in GOLDEN.glob("*.yaml"):
        shutil.copy(scenario, tmp_path)
    shutil.copytree(GOLDEN / "thresholds_context", tmp_path / "thresholds_context")
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Program:
    def run(self, *arguments):
        return subprocess.run([os.environ["SHARDLINE_PROGRAM"], *arguments], capture_output=True, text=True)

    def document(self, *arguments):
        ran = self.run(*arguments, "--json")
        assert ran.returncode in (0, 3), ran.stderr
        return json.loads(ran.stdout)


@pytest.fixture
def program():
    return Program()
