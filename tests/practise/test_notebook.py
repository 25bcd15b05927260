"""The notebook runs, and without a GPU it prints what is stored in it."""

from __future__ import annotations

import json
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
WRITE = "%%writefile "


def test_the_notebook_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for folder in ("benchmarks", "examples"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    cells = json.loads((ROOT / "examples" / "practise.ipynb").read_text())["cells"]
    namespace = {"__name__": "notebook"}
    for cell in (cell for cell in cells if cell["cell_type"] == "code"):
        code = "".join(cell["source"])
        if code.startswith(WRITE):
            name, text = code.removeprefix(WRITE).split("\n", 1)
            Path(name).write_text(text + "\n")
            continue
        capsys.readouterr()
        exec(compile(code, "notebook", "exec"), namespace)
        stored = "".join(line for output in cell["outputs"] for line in output["text"])
        if not torch.cuda.is_available():
            assert capsys.readouterr().out == stored
