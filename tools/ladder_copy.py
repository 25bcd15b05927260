"""Copies a step of a ladder into a ``.cu`` file of its own, with the entry point of ``python -m torch_ops.ladder compare``.

    python -m tools.ladder_copy reduce_sum                  the last step in float32 below the production operator
    python -m tools.ladder_copy reduce_sum --step vectors   another step

The file has all sources of the step, so it needs no other one.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^#include "([^"]+)".*$', re.MULTILINE)

HEAD = """// Step {step} of the ladder of {op}, copied by python -m tools.ladder_copy.
"""
TAIL = """
namespace {{

// allocate() as a Workspace. Its memory is freed after the call.
struct Scratch : gpuopt::Workspace {{
  void* (*memory)(size_t);
  explicit Scratch(void* (*memory)(size_t)) : memory(memory) {{}}
  void* allocate(size_t bytes) override {{ return memory(bytes); }}
  void release() override {{}}
}};

[[maybe_unused]] int attribute(cudaDeviceAttr name) {{
  int device = 0, value = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&value, name, device);
  return value;
}}
[[maybe_unused]] int sms() {{ return attribute(cudaDevAttrMultiProcessorCount); }}

template <typename... T>
[[maybe_unused]] bool aligned(const T*... memory) {{
  return ((reinterpret_cast<uintptr_t>(memory) % 16 == 0) && ...);
}}

}}  // namespace

extern "C" {signature} {{
  using namespace gpuopt;
  using namespace gpuopt::{room};
  constexpr int kStep = {number};
  [[maybe_unused]] Scratch workspace(allocate);
{body}
}}
"""

_ALIGNED_VECTOR = "  if (!aligned(in)) return cudaErrorNotSupported;\n"
_IMAGE = """  LadderProblem problem;
  problem.from = {start};
  problem.to = out;
  problem.planes = planes;
  problem.height = ladder_axis(height, 2 * height);
  problem.width = ladder_axis(width, 2 * width);
  if (planes * height * width == 0) return cudaSuccess;
  if (!aligned({start})) return cudaErrorNotSupported;
  return ladder_{pass_}(kStep, problem, stream);"""
# For each ladder: its room, its step, the sources, and the body of the entry point.
LADDERS: dict[str, tuple[str, str, tuple[str, ...], str]] = {
    "reduce_sum": ("reduce", "last_block_ticket", ("reduce/ladder/reduce_ladder.cu",), _ALIGNED_VECTOR +
                   "  return ladder_sum(kStep, {in, size, out, sms()}, workspace, stream);"),
    "reduce_max": ("reduce", "last_block_ticket", ("reduce/ladder/reduce_ladder.cu",), _ALIGNED_VECTOR +
                   "  return ladder_max(kStep, {in, size, out, sms()}, workspace, stream);"),
    "cumsum": ("scan", "look_back", ("scan/ladder/scan_ladder_vectors.cu",), _ALIGNED_VECTOR +
               "  if (size == 0) return cudaSuccess;\n"
               "  return ladder_scan_vectors(kStep, {in, size, out, sms()}, workspace, stream);"),
    "mul": ("elementwise", "vectors", ("elementwise/ladder/elementwise_ladder.cu",),
            "  if (!aligned(self, other)) return cudaErrorNotSupported;\n"
            "  return ladder_mul(kStep, {self, other, out, size, sms()}, stream);"),
    "upsample_nearest2d": ("upsample", "vectors_2x", ("upsample/ladder/upsample_ladder.cu",),
                           _IMAGE.format(start="in", pass_="forward")),
    "upsample_nearest2d_backward": ("upsample", "gather_2x", ("upsample/ladder/upsample_ladder.cu",),
                                    _IMAGE.format(start="grad", pass_="backward")),
    "index_add_": ("index_add", "sorted_segments", (
        "index_add/ladder/index_add_ladder.cu", "index_sort/index_sort.cu", "common/launch.cu"),
                   "  const Device device{sms(), attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin)};\n"
                   "  const LadderProblem problem{self, source, index, DType::kFloat32, rows, width, entries};\n"
                   "  return ladder_index_add(kStep, problem, device, workspace, stream);"),
    "dot": ("dot", "vectors", ("dot/ladder/dot_ladder.cu",),
            "  if (!aligned(self, tensor)) return cudaErrorNotSupported;\n"
            "  return ladder_dot(kStep, {self, tensor, size, out, sms()}, workspace, stream);"),
    "conv1d": ("conv1d", "register_window", ("conv1d/ladder/conv1d_ladder.cu",),
               "  return ladder_conv1d(kStep, {in, weight, out, rows, size, taps}, stream);"),
    "transpose2d": ("transpose", "vectors", ("transpose/ladder/transpose_ladder.cu",),
                    "  if (rows % 4 != 0 || columns % 4 != 0 || !aligned(in)) return cudaErrorNotSupported;\n"
                    "  if (rows * columns == 0) return cudaSuccess;\n"
                    "  return ladder_transpose(kStep, {in, out, rows, columns}, stream);"),
    "spmm": ("spmm", "feature_slices", ("spmm/ladder/spmm_ladder.cu",),
             "  const LadderProblem problem{ptr,  index,   value,   dense,    out,\n"
             "                              DType::kFloat32, rows, columns, entries, features,\n"
             "                              attribute(cudaDevAttrL2CacheSize)};\n"
             "  return ladder_spmm(kStep, problem, workspace, stream);"),
    "matmul": ("matmul", "three_tf32_wgmma", ("matmul/paths/matmul_3xtf32_sm90a.cu", "common/launch.cu"),
               "  if (m == 0 || n == 0) return cudaSuccess;\n"
               "  if (n % 4 != 0 || k % 4 != 0 || !aligned(a, b)) return cudaErrorNotSupported;\n"
               "  Plan plan;\n"
               "  plan.problem.a = {a, k, 1, 0};\n"
               "  plan.problem.b = {b, n, 1, 0};\n"
               "  plan.problem.out = out;\n"
               "  plan.problem.m = static_cast<int32_t>(m);\n"
               "  plan.problem.n = static_cast<int32_t>(n);\n"
               "  plan.problem.k = plan.part_k = static_cast<int32_t>(k);\n"
               "  return launch(plan, workspace, stream);"),
    "triangle_count": ("triangle_count", "hash", (
        "triangle_count/ladder/triangle_count_ladder.cu", "triangle_count/triangle_count_orient.cu",
        "triangle_count/triangle_count_sort.cu", "common/launch.cu"),
        "  cudaError_t error = cudaMemsetAsync(out, 0, sizeof(int64_t), stream);\n"
        "  if (error != cudaSuccess || edges == 0) return error;\n"
        "  const auto numbers = [&](int64_t count) {\n"
        "    return static_cast<int32_t*>(workspace.allocate(count * sizeof(int32_t)));\n"
        "  };\n"
        "  Oriented graph;\n"
        "  graph.ptr = static_cast<int64_t*>(workspace.allocate((vertices + 1) * sizeof(int64_t)));\n"
        "  graph.source = numbers(edges);\n"
        "  graph.target = numbers(edges);\n"
        "  graph.order = numbers(vertices);\n"
        "  graph.vertices = vertices;\n"
        "  graph.capacity = edges;\n"
        "  error = launch(plan(Edges{source, target, false, edges, vertices}, graph), workspace, stream);\n"
        "  if (error != cudaSuccess) return error;\n"
        "  const LadderProblem problem{graph.ptr, graph.source, graph.target, vertices, edges,\n"
        "                              reinterpret_cast<uint64_t*>(out)};\n"
        "  return ladder_triangle_count(kStep, problem, stream);"),
    "layer_norm": ("norm", "registers", ("norm/ladder/norm_ladder.cu",),
                   "  if (rows * length == 0) return cudaSuccess;\n"
                   "  const LadderForward<void> problem{in, weight, bias, out, rows, length};\n"
                   "  return ladder_forward(kStep, DType::kFloat32, problem, stream);"),
    "layer_norm_backward": ("norm", "partial_sums", ("norm/ladder/norm_ladder_backward.cu",),
                            "  if (rows * length == 0) {\n"
                            "    const size_t bytes = length * sizeof(float);\n"
                            "    const cudaError_t error = cudaMemsetAsync(weight_grad, 0, bytes, stream);\n"
                            "    return error ? error : cudaMemsetAsync(bias_grad, 0, bytes, stream);\n"
                            "  }\n"
                            "  const LadderBackward<void> problem{grad, in, mean, rstd, weight,\n"
                            "                                     in_grad, weight_grad, bias_grad, rows, length};\n"
                            "  return ladder_backward(kStep, DType::kFloat32, sms(), problem, workspace, stream);"),
}  # fmt: skip


def inlined(path: Path, seen: set[Path], part: int = 0) -> str:
    """A source with its project headers in it, each of them once. Parts may define equal names in their unnamed namespaces."""
    if path in seen:
        return ""
    seen.add(path)
    text = path.read_text().replace("#pragma once\n", "")
    if part:
        text = text.replace("\nnamespace {\n", f"\ninline namespace part{part} {{\n")

    def header(match: re.Match) -> str:
        return inlined(ROOT / "csrc" / match[1], seen)

    return INCLUDE.sub(header, text)


def copied(op: str, step: str | None = None) -> str:
    """The text of the file."""
    from torch_ops import ladder
    from torch_ops.ladder.problems import PROBLEMS

    room, last, sources, body = LADDERS[op]
    number = [known.name for known in ladder.steps(op)].index(step or last)
    seen: set[Path] = set()
    text = "\n".join(inlined(ROOT / "csrc" / source, seen, part) for part, source in enumerate(sources))
    if "gpuopt::Workspace" not in text and "class Workspace" not in text:
        text += inlined(ROOT / "csrc" / "common" / "workspace.h", seen)
    tail = TAIL.format(room=room, number=number, signature=PROBLEMS[op].signature, body=body)
    return HEAD.format(step=step or last, op=op) + text + tail


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("op", choices=LADDERS)
    parser.add_argument("--step", help="the name of a step")
    arguments = parser.parse_args()
    print(copied(arguments.op, arguments.step), end="")


if __name__ == "__main__":
    main()
