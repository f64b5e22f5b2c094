"""reports/shardline.ipynb has the outputs that its cells have when they are run now."""

import copy
import os
import pathlib

import pytest

nbclient = pytest.importorskip("nbclient", reason="no python3-nbclient here")
nbformat = pytest.importorskip("nbformat", reason="no python3-nbformat here")
pytest.importorskip("ipykernel", reason="no python3-ipykernel here")
pytest.importorskip("pandas", reason="no python3-pandas here")

NOTEBOOK = pathlib.Path(__file__).resolve().parents[2] / "reports" / "shardline.ipynb"


def joined(outputs):
    """What a cell prints comes in as many pieces as the kernel happens to flush: one text of each run of them."""
    out = []
    for output in outputs:
        last = out[-1] if out else None
        if last is not None and output.output_type == last.output_type == "stream" and output.name == last.name:
            last.text += output.text
        else:
            out.append(output)
    return out


def made_again(notebook):
    out = copy.deepcopy(notebook)
    for cell in out.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    nbclient.NotebookClient(out, timeout=300, kernel_name="python3", record_timing=False).execute()
    for cell in out.cells:
        if cell.cell_type == "code":
            cell.outputs = joined(cell.outputs)
    # Versions of the interpreter that ran it here.
    out.metadata = notebook.metadata
    return out


def test_the_notebook_is_what_the_module_answers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path))
    committed = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(committed)
    again = nbformat.writes(made_again(committed))
    if again + "\n" != NOTEBOOK.read_text():
        new = pathlib.Path(os.environ["SHARDLINE_NEW"]) / "shardline.ipynb.new"
        new.write_text(again + "\n")
        pytest.fail(f"the outputs differ; if the new ones are right: cp {new} {NOTEBOOK}")
