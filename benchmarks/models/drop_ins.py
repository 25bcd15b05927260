"""Trains a Mamba model of transformers with PyTorch's operators, and with the drop-ins of torch_ops.compat.

    python -m benchmarks drop-ins               bfloat16 under autocast, and float32
    python -m benchmarks drop-ins --steps 20    a shorter training

Prints a table, and writes drop_ins.json into benchmarks/results/<gpu>/. Each training runs in a process of its own, because transformers
looks for the packages when a model is imported. Weights, data and their order are the same in all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import torch

from benchmarks.harness import command, machine, report

WAYS = ("PyTorch", "drop-ins")
DTYPES = ("bf16", "f32")
MODEL = {"vocab_size": 1000, "hidden_size": 768, "num_hidden_layers": 2, "state_size": 16}
BATCH, LENGTH = 4, 128


def batches(steps: int):
    """Sequences that drift upwards with noise, so that the loss falls slowly and no batch comes twice."""
    random = torch.Generator().manual_seed(1)
    for _ in range(steps):
        trend = torch.randint(0, 900, (BATCH, LENGTH), generator=random).cumsum(1) // 7
        noise = torch.randint(0, 30, (BATCH, LENGTH), generator=random)
        yield (trend + noise) % MODEL["vocab_size"]


def train(way: str, dtype: str, steps: int, device: str, model: dict) -> dict:
    """The losses of all steps, the median time of a step in ms, and the most memory in MiB. Packages that are installed are hidden."""
    from torch_ops import compat

    if way == "drop-ins":
        compat.install(force=True)
    else:
        sys.modules.update(dict.fromkeys(("causal_conv1d", "mamba_ssm")))
    from transformers import MambaConfig, MambaForCausalLM

    torch.manual_seed(0)
    network = MambaForCausalLM(MambaConfig(**model, pad_token_id=0, bos_token_id=1, eos_token_id=2)).to(device).train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-4)
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    losses, times = [], []
    for tokens in batches(steps):
        tokens = tokens.to(device)
        wait()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=dtype == "bf16"):
            loss = network(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        optimizer.step()
        wait()
        times.append(1e3 * (time.perf_counter() - start))
        losses.append(loss.item())
    memory = torch.cuda.max_memory_allocated() >> 20 if device == "cuda" else None
    return {
        "way": way,
        "dtype": dtype,
        "ms": statistics.median(times[steps // 5 :]),
        "memory": memory,
        "losses": losses,
    }


def in_process(*arguments) -> dict:
    words = [sys.executable, "-m", "benchmarks", "drop-ins", "--one", json.dumps(arguments)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(words, cwd=machine.REPOSITORY, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def difference(losses: list[float], others: list[float]) -> float:
    """The largest relative difference of two losses of the same step."""
    return max(abs(a - b) / abs(a) for a, b in zip(losses, others, strict=True))


def table(rows: list[dict]) -> str:
    lines = ["| dtype | PyTorch, ms a step | drop-ins | ratio | memory, MiB | losses differ by at most |"]
    lines += ["|---|---:|---:|---:|---:|---:|"]
    for slow, fast in zip(rows[::2], rows[1::2]):
        memory = f"{slow['memory']} -> {fast['memory']}"
        cells = (
            slow["dtype"],
            f"{slow['ms']:.1f}",
            f"{fast['ms']:.2f}",
            f"{slow['ms'] / fast['ms']:.1f}",
            memory,
            f"{fast['difference']:.1e}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(argv: list[str]) -> int:
    parser = command.measuring("drop-ins", __doc__, "/drop_ins.json")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--one", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.one:
        print(json.dumps(train(*given.one)))
        return 0
    if not torch.cuda.is_available():
        return command.failed(command.NO_GPU)
    out = given.out or command.results_of(machine.gpu()["name"]) / "drop_ins.json"
    settings = {"model": MODEL, "batch": BATCH, "length": LENGTH, "steps": given.steps}
    result = report.fresh("drop_ins", settings, given.commit)
    result["rows"] = [in_process(way, dtype, given.steps, "cuda", MODEL) for dtype in DTYPES for way in WAYS]
    for slow, fast in zip(result["rows"][::2], result["rows"][1::2]):
        fast["difference"] = difference(slow["losses"], fast["losses"])
    result["complete"] = True
    report.save(out, result)
    print(table(result["rows"]))
    return 0
