"""Measures every path that supports a convolution, and fits the costs that choose among them.

    python -m benchmarks tune conv1d                  measures, on each GPU there is
    python -m benchmarks tune conv1d --fit            fits to the file of the last measurement, without a GPU
    python -m benchmarks tune pad                     measures copies beside ATen (see copies.py)
    python -m benchmarks tune scan                    measures what the limits of a room's plans are worth (see limits.py)

``results/<gpu>/conv1d-paths.jsonl`` has a line for each problem, dtype and pass, with the microseconds of each path and of ATen. Device
time, as in :mod:`benchmarks.harness.timer`, with fewer samples: paths are compared with each other within one problem.
``csrc/conv1d/costs.h`` has the coefficients. See :func:`fit` for how they are found. ``rows``, which transposes channels-last signals and
takes the path of their rows, is measured too. Its cost is that path's and the transpositions' (``csrc/conv1d/through_rows.h``).
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import random
import statistics
from pathlib import Path

import torch

import torch_ops  # noqa: F401
from benchmarks.harness import command, machine, report, timer
from benchmarks.random import copies, limits
from benchmarks.rooms import convolutions

PASSES = ("output", "grad_input", "grad_weight")
DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64}
ROOT = machine.REPOSITORY
EVIDENCE = ROOT / "benchmarks/results/nvidia-h200/conv1d-paths.jsonl"
COSTS = ROOT / "csrc/conv1d/costs.h"
CALLS, SAMPLES, MOST_COPIES = 32, 7, 32
TERMS = 5

# ---------------------------------------------------------------- problems

depthwise, Problem = convolutions.depthwise, convolutions.Problem
# Layers of models (Mamba, Hyena, ConvNeXt, wav2vec 2.0, EnCodec, downsampling), and signals of one channel.
LAYERS = [
    depthwise(8, 4096, 2048, 4, padding=3),
    depthwise(1, 5120, 4, 4, padding=3),
    depthwise(2, 1536, 512, 4, padding=3),
    depthwise(1, 768, 128, 3, padding=1),
    depthwise(32, 768, 1024, 7, padding=3),
    depthwise(16, 512, 1500, 31, padding=15),
    depthwise(4, 1024, 400, 15, padding=7),
    depthwise(32, 256, 1024, 3, stride=2, padding=1),
    depthwise(64, 64, 8192, 9, stride=4, padding=4),
    Problem(16, 1, 80000, 10, 512, stride=5),
    Problem(4, 1, 16000, 10, 512, stride=5),
    Problem(8, 1, 48000, 7, 32, padding=3),
    Problem(8, 2, 48000, 7, 64, padding=3),
    Problem(8, 32, 48000, 7, 1, padding=3),
    Problem(1, 32, 24000, 7, 1, padding=3),
    Problem(8, 64, 16000, 7, 1, padding=3),
    Problem(16, 16, 4000, 3, 1, padding=1),
    Problem(4, 48, 2000, 15, 1, padding=7),
    Problem(4, 8, 16000, 5, 8, padding=2),
    Problem(16, 1, 2048, 16, 64, stride=8),
    convolutions.one_channel(1 << 20, 31),
    convolutions.one_channel(1 << 22, 5),
    Problem(1, 1, 1 << 18, 255, 1, padding=127),
    Problem(256, 1, 128, 3, 16, padding=1),
    # Short convolutions of sequence models, of sizes that divide by little.
    depthwise(1, 1536, 2048, 4, padding=3),
    depthwise(4, 2050, 4096, 4, padding=3),
    depthwise(2, 1793, 3001, 4, padding=3),
    depthwise(16, 772, 513, 3, padding=2),
    depthwise(1, 6057, 8000, 4, padding=3),
    depthwise(512, 193, 48, 7, padding=6),
    depthwise(8, 524, 3436, 7, padding=6),
    depthwise(1, 10240, 1, 4, padding=3),
    depthwise(64, 2560, 64, 4, padding=3),
    depthwise(4, 96, 65536, 5, padding=4),
    depthwise(16, 512, 800, 15, padding=7),
    depthwise(8, 511, 1601, 31, padding=15),
]


# Seeds of samples that no published page reports.
SEEDS = (620, 621, 622, 623, 624, 625, 626)


def wide_groups(count: int, seed: int) -> list[Problem]:
    """Several groups of 9 to 64 channels with up to 128 taps: positional convolutions, codecs and grouped layers."""
    draw = random.Random(seed)
    found: dict[Problem, None] = {}
    while len(found) < count:
        channels, groups, taps = (
            draw.randint(9, 64),
            draw.choice((2, 3, 4, 8, 16, 32)),
            draw.choice((3, 5, 9, 16, 31, 64, 128)),
        )
        length = max(int(2 ** draw.uniform(5, 14)), taps)
        batch = int(2 ** draw.uniform(0, 5))
        if batch * channels * groups * length <= 1 << 23:
            found[
                Problem(batch, channels * groups, length, taps, channels * groups, padding=taps // 2, groups=groups)
            ] = None
    return list(found)


def one_group(count: int, seed: int) -> list[Problem]:
    """9 to 64 input channels and one group: first and last layers of codecs, vocoders and classifiers."""
    draw = random.Random(seed)
    found: dict[Problem, None] = {}
    while len(found) < count:
        channels, taps, stride = draw.randint(9, 64), draw.choice((1, 3, 5, 7, 15)), draw.choice((1, 1, 1, 2, 4))
        out_channels = draw.choice((1, 1, draw.randint(2, 16), draw.randint(17, 64), draw.randint(65, 256)))
        length = int(2 ** draw.uniform(6, 16))
        batch = int(2 ** draw.uniform(0, 5))
        if batch * max(channels, out_channels) * length <= 1 << 24:
            found[Problem(batch, channels, length, taps, out_channels, stride, taps // 2)] = None
    return list(found)


def dense_layers(count: int, seed: int) -> list[Problem]:
    """One group of 16 to 64 input channels, multiples of 8 as models have them: codecs, vocoders, audio classifiers."""
    draw = random.Random(seed)
    found: dict[Problem, None] = {}
    while len(found) < count:
        channels, taps = draw.choice((16, 24, 32, 32, 48, 64, 64)), draw.choice((1, 1, 3, 3, 4, 5, 7, 7, 11))
        out_channels = draw.choice((channels, channels, 2 * channels, max(channels // 2, 16), 128, 512))
        dilation, stride = draw.choice(((1, 1), (1, 1), (1, 1), (3, 1), (9, 1), (1, 2), (1, 4)))
        dilation = dilation if taps > 1 else 1
        length = int(2 ** draw.uniform(7, 16))
        length -= length % 8 if draw.random() < 0.6 else 0
        batch = draw.choice((1, 2, 4, 8, 16, 16, 32))
        if 1 << 15 <= batch * max(channels, out_channels) * length <= 1 << 24 and length > dilation * taps:
            padding = dilation * (taps - 1) // 2
            found[Problem(batch, channels, length, taps, out_channels, stride, padding, dilation)] = None
    return list(found)


def short_filters(count: int, seed: int) -> list[Problem]:
    """Depthwise layers of 2 to 4 taps whose results are as long as the input, or as long as a causal one's."""
    draw = random.Random(seed)
    found: dict[Problem, None] = {}
    while len(found) < count:
        taps, channels = draw.choice((2, 3, 3, 4, 4)), 8 * draw.randint(8, 512)
        length, batch = 8 * int(2 ** draw.uniform(3, 10)), int(2 ** draw.uniform(0, 4))
        if batch * channels * length <= 1 << 25:
            padding = 1 if taps == 3 else taps - 1
            found[depthwise(batch, channels, length, taps, padding=padding)] = None
    return list(found)


def shapes(count: int) -> list[Problem]:
    """Layers, and random problems of seven classes."""
    lists = [
        convolutions.sample(150, SEEDS[0])[:count],
        convolutions.sample(150, SEEDS[1], convolutions.FEW_VALUES)[:count],
        convolutions.sample(100, SEEDS[2], 1 << 23)[:count],
        wide_groups(40, SEEDS[3])[:count],
        one_group(60, SEEDS[4])[:count],
        short_filters(24, SEEDS[5])[:count],
        dense_layers(90, SEEDS[6])[:count],
    ]
    mixed = [problem for problems in itertools.zip_longest(*lists) for problem in problems if problem]
    return list(dict.fromkeys([*LAYERS, *mixed]))


@dataclasses.dataclass(frozen=True)
class Case:
    problem: Problem
    dtype: str
    layout: str  # of convolutions.LAYOUTS


def cases(count: int) -> list[Case]:
    """All shapes in float32 and bfloat16; some of them in float64. With channels last some, and all depthwise ones."""
    all_shapes = shapes(count)
    few = all_shapes[: max(len(all_shapes) // 6, 1)]
    last = [p for i, p in enumerate(all_shapes) if i < len(few) or p.groups == p.channels > 1]
    found = [Case(problem, dtype, "") for problem in all_shapes for dtype in ("f32", "bf16")]
    found += [Case(problem, "f64", "") for problem in few]
    found += [Case(problem, dtype, "CL") for problem in last for dtype in ("f32", "bf16")]
    random.Random(0).shuffle(found)  # a run that ends early has measured some of each class
    return found


def paths(problem: Problem, what: str, tensors: tuple, multiprocessors: int) -> tuple[str, dict[str, list[float]]]:
    """The name of the chosen path; and of each path that supports the problem the terms of its cost, none if a rule chooses it."""
    x, w, g = tensors
    p = problem
    text = torch.ops.gpuopt_ladder.conv1d_paths(
        x, w, None, None if what == "output" else g, p.stride, p.padding, p.dilation, p.groups, what, multiprocessors
    )
    chosen, *lines = text.split("\n")
    words = [line.split() for line in lines]
    return chosen, {name: [float(term) for term in terms[1:]] for name, *terms in words}


# ---------------------------------------------------------------- measuring


def operands(case: Case) -> tuple[torch.Tensor, ...]:
    def make(shape):
        x = torch.randn(shape, device="cuda", dtype=torch.float32).to(DTYPES[case.dtype])
        return convolutions.channels_last(x) if case.layout == "CL" and shape != case.problem.weight_shape else x

    return make(case.problem.input_shape), make(case.problem.weight_shape), make(case.problem.out_shape)


def contenders(problem: Problem, what: str, names: list[str]) -> dict:
    ladder, aten, p = torch.ops.gpuopt_ladder, torch.ops.aten, problem

    def path_call(name):
        return lambda x, w, g: ladder.conv1d_path(
            x, w, None, g if what != "output" else None, p.stride, p.padding, p.dilation, p.groups, what, name
        )

    calls = {name: path_call(name) for name in names}
    sizes = ([p.stride], [p.padding], [p.dilation])
    if what == "output":
        calls["aten"] = lambda x, w, g: aten.convolution(x, w, None, *sizes, False, [0], p.groups)
    else:
        mask = [what == "grad_input", what == "grad_weight", False]
        calls["aten"] = lambda x, w, g: aten.convolution_backward(g, x, w, None, *sizes, False, [0], p.groups, mask)
    return calls


def has_fused(problem: Problem) -> bool:
    """Whether one kernel computes all gradients."""
    return problem.depthwise and 2 <= problem.taps <= 4 and problem.stride == problem.dilation == 1


def gradients(problem: Problem, chosen: dict[str, str]) -> dict:
    """Both gradients: by one kernel, and by the chosen path of each."""
    p = problem
    sizes, mask = ([p.stride], [p.padding], [p.dilation], p.groups), [True, True, False]
    each = [contenders(p, what, [chosen[what]])[chosen[what]] for what in PASSES[1:]]
    return {
        "fused": lambda x, w, g: torch.ops.gpuopt.conv1d_backward(g, x, w, *sizes, mask),
        "separate": lambda x, w, g: [call(x, w, g) for call in each],
        "aten": lambda x, w, g: torch.ops.aten.convolution_backward(
            g, x, w, None, *sizes[:3], False, [0], p.groups, mask
        ),
    }


def measure(calls: dict, args: tuple, flush: torch.Tensor) -> dict[str, float]:
    """Median microseconds of each; contenders take turns. A result that is not ATen's is an error."""
    guess = {}
    expected = calls["aten"](*args)
    expected = next(x for x in expected if x is not None) if isinstance(expected, tuple) else expected
    limit = 0.02 * expected.abs().max().item()
    for name, call in calls.items():
        result = call(*args)
        result = next(x for x in result if x is not None) if isinstance(result, (tuple, list)) else result
        if name != "aten" and not (result - expected).abs().max().item() <= limit:
            raise RuntimeError(f"{name} is wrong for {[tuple(x.shape) for x in args]}")
        guess[name] = min(timer._samples(lambda call=call: call(*args), 3)[0])
    samples: dict[str, list[float]] = {name: [] for name in calls}
    if min(guess.values()) >= timer.GRAPH_BELOW_US or max(guess.values()) > 2000:
        for _ in range(2):
            for name, call in calls.items():
                count = 2 if guess[name] > 2000 else SAMPLES
                samples[name] += timer._samples(lambda call=call: call(*args), count, lambda: flush.fill_(1))[0]
    else:
        values = sum(x.numel() * x.element_size() for x in args)
        copies = max(1, min(MOST_COPIES, math.ceil(flush.numel() * 4 / values)))
        sets = [args] + [tuple(x.clone() for x in args) for _ in range(copies - 1)]
        count = max(CALLS, copies)
        graphs = {name: timer.capture(call, sets, count) for name, call in calls.items()}
        for _ in range(2):
            for name, graph in graphs.items():
                samples[name] += [us / count for us in timer._samples(graph.replay, SAMPLES)[0]]
    return {name: round(statistics.median(of), 3) for name, of in samples.items()}


def row_of(case: Case, what: str, us: dict[str, float]) -> dict:
    return {**dataclasses.asdict(case.problem), "dtype": case.dtype, "layout": case.layout, "what": what, "us": us}


def rows(of: list[Case]):
    flush = torch.empty(25 << 20, dtype=torch.int32, device="cuda")
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
    for case in of:
        tensors, chosen = operands(case), {}
        for what in PASSES:
            name, supporting = paths(case.problem, what, tensors, multiprocessors)
            us = measure(contenders(case.problem, what, list(supporting)), tensors, flush)
            yield row_of(case, what, us)
            chosen[what] = name if name in us else "aten"
        if has_fused(case.problem):
            yield row_of(case, "gradients", measure(gradients(case.problem, chosen), tensors, flush))
        del tensors
        torch.cuda.empty_cache()


def measure_part(arguments) -> None:
    part, parts = map(int, arguments.part.split("/"))
    torch.backends.cudnn.benchmark, torch.backends.cudnn.benchmark_limit = True, 4
    with arguments.out.with_suffix(f".{part}").open("w") as file:
        if part == 0:
            print(
                json.dumps({"gpu": machine.gpu(), **machine.versions(), **machine.commit(arguments.commit)}), file=file
            )
        of = [case for case in cases(arguments.count) if arguments.layout in (None, case.layout)]
        for row in rows(of[part::parts]):
            print(json.dumps(report.rounded(row)), file=file, flush=True)


def measure_all(arguments, argv: list[str]) -> int:
    """A process for each GPU. Returns the exit code."""
    if not torch.cuda.is_available():
        return command.failed(command.NO_GPU)
    gpu = machine.slug(torch.cuda.get_device_name())
    if arguments.out == EVIDENCE and gpu != EVIDENCE.parent.name:
        return command.failed(f"{EVIDENCE.relative_to(ROOT)} is not of {gpu}: name another file with --out")
    codes = command.on_every_gpu("tune", *argv)
    if any(codes):
        return command.failed("a measurement failed")
    parts = [arguments.out.with_suffix(f".{i}") for i in range(len(codes))]
    kept = []
    if arguments.layout is not None and arguments.out.exists():
        lines = arguments.out.read_text().splitlines(keepends=True)
        kept = [line for line in lines if json.loads(line).get("layout", "") != arguments.layout]
    arguments.out.write_text("".join([*kept, *(part.read_text() for part in parts)]))
    for part in parts:
        part.unlink()
    return 0


# ---------------------------------------------------------------- fitting


@dataclasses.dataclass
class Measured:
    """A line of the evidence: of each path the terms of its cost, and microseconds."""

    row: dict
    problem: Problem
    us: dict[str, float]
    terms: dict[str, list[float]]
    chosen: str


ATEN = {"output": "aten_forward", "grad_input": "aten_input_gradient", "grad_weight": "aten_weight_gradient"}
DENSE = 96  # kDenseWeights of policy.h


def aten_terms(p: Problem, item: int, scatter: bool) -> list[float]:
    """As policy.h has them."""
    outputs, inputs = p.batch * p.out_channels * p.out_length, p.batch * p.channels * p.length
    weights = p.out_channels * (p.channels // p.groups) * p.taps
    macs = outputs * (p.channels // p.groups) * p.taps
    traffic = (inputs + outputs + weights) * item / 3e6
    return [1, traffic, macs / 1e9, p.groups / 10, inputs / 1e6, p.taps / 10, traffic * scatter]


def is_aligned(p: Problem, item: int) -> bool:
    """Whether cuDNN has its fastest kernels, as policy.h has it."""
    return p.groups == 1 and p.channels % 8 == 0 and p.out_channels % 8 == 0 and item <= 4


def evidence(path: Path) -> list[Measured]:
    measured = []
    for line in path.read_text().splitlines():
        row = json.loads(line)
        if row.get("what") not in PASSES:
            continue
        problem = Problem(**{field.name: row[field.name] for field in dataclasses.fields(Problem)})
        dtype = DTYPES[row["dtype"]]
        shapes = (problem.input_shape, problem.weight_shape, problem.out_shape)
        x, w, g = (torch.empty(shape, dtype=dtype, device="meta") for shape in shapes)
        if row.get("layout") == "CL":
            x, g = (convolutions.channels_last(tensor) for tensor in (x, g))
        tensors = (x, w, g)
        chosen, terms = paths(problem, row["what"], tensors, multiprocessors=132)
        terms = {name: of for name, of in terms.items() if of}
        if problem.channels // problem.groups * (problem.out_channels // problem.groups) >= DENSE:
            terms["aten"] = aten_terms(problem, dtype.itemsize, x.stride(2) != 1 and problem.length > 1)
        measured.append(Measured(row, problem, row["us"], terms, chosen))
    return measured


def key_of(measured: Measured, path: str) -> tuple[str, str]:
    if path == "aten":
        path = ATEN[measured.row["what"]]
        path += "_aligned" * is_aligned(measured.problem, DTYPES[measured.row["dtype"]].itemsize)
    return path, measured.row["dtype"]


def fit(measured: list[Measured], steps: int = 1500) -> dict[tuple[str, str], list[float]]:
    """Coefficients of (path, dtype): of the launch, the bytes and the terms, in microseconds; none is negative.

    They minimise the time that is lost by choosing, smoothed: a path is chosen with the probability that a softmax of the predicted times
    gives, and loses the logarithm of its measured time over the best one's. A tenth of the error of the predictions is added, so that
    they stay times. The softmax gets sharper step by step."""
    torch.manual_seed(0)
    names = sorted({name for m in measured for name in m.terms if name in m.us})
    keys = sorted({key_of(m, name) for m in measured for name in m.terms if name in m.us})
    index = {key: i for i, key in enumerate(keys)}
    shape = (len(measured), len(names))
    x = torch.zeros(*shape, TERMS + 2, dtype=torch.float64)
    y = torch.full(shape, math.nan, dtype=torch.float64)
    group = torch.zeros(shape, dtype=torch.long)
    for i, m in enumerate(measured):
        for j, name in enumerate(names):
            if name in m.terms and name in m.us:
                x[i, j] = torch.tensor(m.terms[name])
                y[i, j], group[i, j] = m.us[name], index[key_of(m, name)]
    there = ~y.isnan()
    log_y = torch.where(there, y, 1.0).log()
    best = torch.where(there, log_y, math.inf).amin(1, keepdim=True)
    # Each term begins with an equal share of the mean time.
    scale = torch.stack([1 / ((x / y[..., None])[there & (group == i)].mean(0) + 1e-9) for i in range(len(keys))])
    scale[scale > 1e8] = 0.0  # a term that a path hasn't
    weights = torch.full((len(keys), TERMS + 2), math.log(1 / (TERMS + 2)), dtype=torch.float64, requires_grad=True)
    near = torch.clamp(torch.exp((best - log_y) / 0.7), min=0.15) * there
    optimizer = torch.optim.Adam([weights], lr=0.03)
    for step in range(steps):
        predicted = (((weights.exp() * scale)[group] * x).sum(-1) + 1e-9).log()
        sharpness = 0.15 * (1 - step / steps) + 0.02
        chosen = torch.softmax(torch.where(there, -predicted / sharpness, -math.inf), 1)
        lost = (chosen * torch.clamp(log_y - best, 0, 2) * there).sum() / len(measured)
        error = torch.nn.functional.smooth_l1_loss(predicted, log_y, reduction="none", beta=0.15)
        loss = lost + (1.0 if step < steps // 3 else 0.1) * (near * error).sum() / near.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    found = (weights.detach().exp() * scale).tolist()
    return {key: found[i] for key, i in index.items()}


def write_costs(coefficients: dict[tuple[str, str], list[float]], old: dict[str, list[list[float]]]) -> None:
    """Paths that were not measured keep what they have; dtypes that were not measured get float32's coefficients."""
    table = dict(old)
    for path in {path for path, _ in coefficients}:
        default = coefficients.get((path, "f32")) or coefficients[path, "bf16"]
        table[path] = [coefficients.get((path, dtype), default) for dtype in DTYPES]

    def row(values):
        launch, moved, *terms = (f"{value:.4g}" for value in values)
        return f"{{{launch}, {moved}, {{{', '.join(terms)}}}}}"

    lines = ["// Written by python -m benchmarks tune conv1d --fit.", "#pragma once", ""]
    lines += ['#include "conv1d/coefficients.h"', "", "// clang-format off", "namespace gpuopt::conv1d::costs {"]
    for path in sorted(table):
        name = "k" + "".join(word.capitalize() for word in path.split("_"))
        lines.append(f"inline constexpr Costs {name} = {{")
        lines += [f"    {row(values)}," for values in table[path]]
        lines.append("};")
    COSTS.write_text("\n".join([*lines, "}  // namespace gpuopt::conv1d::costs"]) + "\n")


def read_costs() -> dict[str, list[list[float]]]:
    table: dict[str, list[list[float]]] = {}
    for line in COSTS.read_text().splitlines():
        words = line.replace("{", " ").replace("}", " ").replace(",", " ").split()
        if line.startswith("inline"):
            name = words[3][1:]
            path = "".join(f"_{c.lower()}" if c.isupper() else c for c in name)[1:]
            table[path] = []
        elif line.startswith("    "):
            table[path].append([float(word) for word in words])
    return table


@dataclasses.dataclass
class Quality:
    """How far the chosen paths are from the best ones, over the problems whose chosen path was measured."""

    problems: int
    mean: float  # geometric mean of the chosen path's time over the best one's
    total: float  # the chosen paths' time over the best ones'
    beyond_3_percent: float  # share of the problems that take over 1.03 times the best path's time
    beyond_10_percent: float
    slower_than_aten: float  # by more than 2 %

    def __str__(self):
        return (
            f"{self.problems} problems take {self.mean:.3f} times the best path's time in the geometric mean, and {self.total:.3f} times in "
            f"all; {self.beyond_3_percent:.1%} take over "
            f"1.03 times, {self.beyond_10_percent:.1%} over 1.1 times; {self.slower_than_aten:.1%} are slower than ATen by over 2 %"
        )


def quality(measured: list[Measured], chosen: list[str]) -> Quality:
    pairs = [(m.us, m.us[path]) for m, path in zip(measured, chosen) if path in m.us]

    def share(of):
        return sum(of) / len(pairs)

    return Quality(
        len(pairs),
        math.exp(statistics.mean(math.log(us / min(all.values())) for all, us in pairs)),
        sum(us for _, us in pairs) / sum(min(all.values()) for all, _ in pairs),
        share(us > 1.03 * min(all.values()) for all, us in pairs),
        share(us > 1.10 * min(all.values()) for all, us in pairs),
        share(all["aten"] < 0.98 * us for all, us in pairs),
    )


def table(measured: list[Measured]) -> str:
    """The paths, in Markdown: where they are chosen, and what each is worth."""
    lines = [
        "| path | problems it supports | chosen | fastest | fastest by 10 % | without it, its problems take |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for what in PASSES:
        lines.append(f"| **{what}** | | | | | |")
        of_pass = [m for m in measured if m.row["what"] == what]
        for name in sorted({name for m in of_pass for name in m.us if name != "aten"}):
            there = [m for m in of_pass if name in m.us]
            best = [m for m in there if m.us[name] == min(m.us.values())]
            next_best = [min(us for other, us in m.us.items() if other != name) for m in best]
            ratios = sorted(after / m.us[name] for m, after in zip(best, next_best))
            worth = f"{statistics.median(ratios):.2f} x" if ratios else "-"
            chosen = sum(m.chosen == name for m in of_pass)
            lines.append(
                f"| `{name}` | {len(there)} | {chosen} | {len(best)} | {sum(r > 1.1 for r in ratios)} | {worth} |"
            )
    return "\n".join(lines)


def choose(m: Measured, coefficients: dict) -> str:
    """The path with the lowest cost, without ``rows``."""

    def cost(path):
        return sum(c * t for c, t in zip(coefficients[key_of(m, path)], m.terms[path]))

    return min((path for path in m.terms if path in m.us), key=cost)


def main(argv: list[str]) -> int:
    parser = command.measuring("tune", __doc__, "/conv1d-paths.jsonl")
    parser.add_argument("room", choices=["conv1d", "pad", *limits.FAMILIES])
    parser.add_argument("--fit", action="store_true", help="fit to an evidence file, without measuring")
    parser.add_argument(
        "--layout", choices=convolutions.LAYOUTS, help="measure this layout alone, and keep the lines of the others"
    )
    parser.add_argument("--count", type=int, default=150, help="random shapes of each list, at most")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    evidence_of = {"conv1d": EVIDENCE, "pad": EVIDENCE.with_name("pads.jsonl")}
    arguments.out = arguments.out or evidence_of.get(arguments.room, limits.EVIDENCE)
    if arguments.room == "pad":
        return command.failed(command.NO_GPU) if not torch.cuda.is_available() else copies.measure(arguments) or 0
    if arguments.room != "conv1d":
        return limits.measure_part(arguments) or 0 if arguments.part else limits.measure(arguments, argv)
    if arguments.part:
        measure_part(arguments)
        return 0
    if not arguments.fit:
        return measure_all(arguments, argv)
    measured = evidence(arguments.out)
    print("compiled:", quality(measured, [m.chosen for m in measured]))
    coefficients = fit(measured)
    print("fitted:  ", quality(measured, [choose(m, coefficients) for m in measured]))
    write_costs(coefficients, read_costs())
    print(
        f"{COSTS.relative_to(ROOT)} is written: build, and write the table of paths with `python -m benchmarks pages`"
    )
    return 0
