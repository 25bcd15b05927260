"""How a ``.cu`` file is called, on the CPU: the compiler is g++, and the functions of the file read and write CPU tensors."""

from __future__ import annotations

import shutil
import subprocess
from types import SimpleNamespace

import pytest
import torch

from torch_ops.ladder import source
from torch_ops.ladder.checks import check
from torch_ops.ladder.problems import PROBLEMS

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="no g++"),
    pytest.mark.filterwarnings("ignore:Sparse"),
]
HEAD = """#include <cstddef>
#include <cstdint>
#include <cstring>
using cudaStream_t = void*;
using cudaError_t = int;
using __half = uint16_t;
extern "C" int practise_last_error() { return 0; }
extern "C" """
MUL = "  for (int64_t i = 0; i < size; ++i) out[i] = self[i] * other[i];\n"


def events_of(op: str, body: str, tmp_path, monkeypatch) -> list[dict]:
    """What the check tells of an entry point with this body."""
    text, library = tmp_path / "kernel.cpp", tmp_path / "kernel.so"
    text.write_text(f"{HEAD}{PROBLEMS[op].signature} {{\n{body}  return 0;\n}}\n")
    subprocess.run(["g++", "-shared", "-fPIC", "-O1", text, "-o", library], check=True)
    monkeypatch.setattr(source, "compiled", lambda *_: (library, []))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=0))
    events = []
    kernel = source.load(PROBLEMS[op], tmp_path / "kernel.cu", None, tmp_path)
    check(PROBLEMS[op], kernel, "cpu", False, lambda event, **values: events.append({"event": event} | values))
    return events


CASES = {
    "right": (MUL, None),
    "behind the result": (MUL + "  out[size] = 0;\n", "out of bounds: writes to 1 element outside of the result"),
    "in front of an operand": (MUL + "  const_cast<float*>(self)[-3] = 0;\n", "3 elements in front of it"),
    "behind allocated memory": (
        MUL + "  static_cast<char*>(allocate(10))[10] = 0;\n", "writes to 1 element outside of memory of allocate()",
    ),
    "inside allocated memory": (MUL + "  std::memset(allocate(10), 0, 10);\n", None),
    "changed": (MUL + "  if (size) const_cast<float*>(other)[0] += 1;\n", "changed inputs: operand 1 was changed"),
    "one too few": (MUL.replace("< size", "< size - 1"), "wrong values: 1 of 1048576 values are wrong"),
    "an error": (MUL + "  return 9;\n", "error: RuntimeError: the kernel returns or causes CUDA error 9"),
    "a crash": (MUL + "  return 700;\n", "crash: Crashed: CUDA error 700"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_products(name, tmp_path, monkeypatch):
    body, text = CASES[name]
    faults = [event for event in events_of("mul", body, tmp_path, monkeypatch) if event["event"] == "fault"]
    if text is None:
        assert not faults
    else:
        assert text in f"{faults[0]['kind']}: {faults[0]['text']}"


def test_what_is_declined(tmp_path, monkeypatch):
    body = "  if (reinterpret_cast<uintptr_t>(self) % 16) return 801;\n" + MUL
    events = events_of("mul", body, tmp_path, monkeypatch)
    assert [event["view"] for event in events if event["event"] == "declined"] == ["misaligned"]
    assert events[-1] == {"event": "checked", "views": 4}
    another = tmp_path / "another"  # a library of the same path would not be loaded again
    another.mkdir()
    events = events_of("mul", "  return 801;\n", another, monkeypatch)
    assert "it declines all operands" in next(event["text"] for event in events if event["event"] == "fault")


SOLUTIONS = {
    "index_add_": "for (int64_t i = 0; i < entries * width; ++i) self[index[i / width] * width + i % width] += source[i];",
    "matmul": """for (int64_t i = 0; i < m * n; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < k; ++j) sum += double(a[i / n * k + j]) * b[j * n + i % n];
      out[i] = sum;
    }""",
    "layer_norm_backward": """for (int64_t j = 0; j < length; ++j) weight_grad[j] = bias_grad[j] = 0;
    for (int64_t r = 0; r < rows; ++r) {
      double one = 0, two = 0;
      const float *g = grad + r * length, *x = in + r * length;
      for (int64_t j = 0; j < length; ++j) {
        const double normal = (double(x[j]) - mean[r]) * rstd[r], scaled = double(g[j]) * weight[j];
        one += scaled / length, two += scaled * normal / length;
        weight_grad[j] += g[j] * normal, bias_grad[j] += g[j];
      }
      for (int64_t j = 0; j < length; ++j) {
        const double normal = (double(x[j]) - mean[r]) * rstd[r], scaled = double(g[j]) * weight[j];
        in_grad[r * length + j] = rstd[r] * (scaled - one - normal * two);
      }
    }""",
    "spmm": """for (int64_t i = 0; i < rows * features; ++i) {
      double sum = 0;
      for (int64_t e = ptr[i / features]; e < ptr[i / features + 1]; ++e)
        sum += double(value[e]) * dense[index[e] * features + i % features];
      out[i] = sum;
    }""",
    "upsample_nearest2d": """for (int64_t i = 0; i < planes * 4 * height * width; ++i) {
      const int64_t x = i % (2 * width) / 2, y = i / (2 * width) % (2 * height) / 2, plane = i / (4 * height * width);
      out[i] = in[(plane * height + y) * width + x];
    }""",
    "conv1d": """for (int64_t i = 0; i < rows * size; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < taps; ++j) {
        const int64_t at = i % size + j - taps / 2;
        if (at >= 0 && at < size) sum += double(weight[j]) * in[i / size * size + at];
      }
      out[i] = sum;
    }""",
    "transpose2d": "for (int64_t i = 0; i < rows * columns; ++i) out[i % columns * rows + i / columns] = in[i];",
}  # fmt: skip


@pytest.mark.parametrize("op", SOLUTIONS)
def test_arguments_are_those_of_the_signature(op, tmp_path, monkeypatch):
    events = events_of(op, SOLUTIONS[op] + "\n", tmp_path, monkeypatch)
    assert not [event for event in events if event["event"] == "fault"]
