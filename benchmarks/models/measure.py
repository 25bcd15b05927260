"""Measures real architectures with and without gpuopt: ``torch_ops.override()``, torch.compile, layouts and CUDA graphs.

    python -m benchmarks models                          every model
    python -m benchmarks models gcn dlrm --modes eager   some models, one mode
    python -m benchmarks models --modes layout           models that convolve signals, with channels-last stacks
    python -m benchmarks models --modes graph            every model as CUDA graphs
    python -m benchmarks models --list                   the models, and the packages that are missing
    python -m benchmarks models --dry                    every model in tiny sizes on the CPU: builds it and does a step
    python -m benchmarks models --part 0/2               half of the models, for one of two machines; --merge joins the results
    python -m benchmarks models --merge A.json B.json    one result from several of the same GPU and commit

Every model and mode runs in a separate process, so a crash costs no other result. All GPUs are used, two processes on each: one
measures while the next one starts. Writes benchmarks/results/<gpu>/models.json after every model. benchmarks/models/run.py says what is
measured, benchmarks/models/zoo holds the models. Most of them need packages that `pip install 'gpuopt[models]'` installs.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import fcntl
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import torch

from benchmarks.harness import command, machine, report
from benchmarks.models import report as model_report
from benchmarks.models import run as model_run
from benchmarks.models import zoo

TOO_LONG = 124  # the exit code of a process that reached its time limit, as timeout(1) has it
PROCESSES = 2  # for each GPU
# cuBLAS is repeatable only with a workspace of a fixed size. It is read once, so deterministic models have it from the start.
WORKSPACE = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}

# ---------------------------------------------------------------- one model, in a separate process


def measure(arguments: argparse.Namespace) -> None:
    """Measures one model in one mode. Waits for its GPU, which another process may be using."""
    model = zoo.models()[arguments.names[0]]
    rows: list[dict] = []

    def save(row: dict) -> None:
        if not any(row is other for other in rows):
            rows.append(row)
        report.save(arguments.out, {"rows": rows})

    # What needs no GPU comes before the lock: imports, and random weights.
    base, contexts = model.task(), model_run.contenders()
    if model.package == "torch_geometric" and arguments.modes[0] in ("eager", "graph"):
        contexts |= {model_run.LAYERS: model_run.layers}
    with open(arguments.lock, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # A thread ends the process, also when the GPU or a compiler hangs.
        watch = threading.Timer(arguments.limit, os._exit, (TOO_LONG,))
        watch.daemon = True
        watch.start()
        options = {"contexts": contexts, "seconds": arguments.seconds, "save": save}
        model_run.run(model, base, arguments.modes[0], arguments.dtypes, arguments.passes, "cuda", **options)
        watch.cancel()


# ---------------------------------------------------------------- all models


def jobs(arguments: argparse.Namespace) -> tuple[list[tuple[str, str]], list[str]]:
    """The pairs (model, mode) to measure, and a sentence for each that is left out."""
    found, left_out = [], []
    known = zoo.models()
    for mode in arguments.modes:
        for name in arguments.names:
            model = known[name]
            if mode == "layout" and not model.signals:
                continue
            reason = model.missing()
            if reason is None and mode == "compiled" and model.not_compiled:
                reason = f"{model.title} is not compiled: {model.not_compiled}."
            if reason is None:
                found.append((name, mode))
            elif reason not in left_out:
                left_out.append(reason)
    if arguments.part:
        part, parts = map(int, arguments.part.split("/"))
        found = found[part::parts]
    return found, left_out


def run_job(job: tuple[str, str], gpu: int, folder: Path, arguments: argparse.Namespace) -> tuple[list[dict], str]:
    """The rows of one process, and a sentence if it failed."""
    name, mode = job
    out = folder / f"{name}.{mode}.json"
    words = [sys.executable, "-m", "benchmarks", "models", name, "--modes", mode, "--out", str(out), "--job"]
    words += ["--dtypes", *arguments.dtypes, "--passes", *arguments.passes, "--lock", str(folder / f"gpu{gpu}")]
    words += ["--seconds", str(arguments.seconds), "--limit", str(arguments.limit)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": visible(gpu)}
    if zoo.models()[name].deterministic:
        environment |= WORKSPACE
    done = subprocess.run(words, cwd=machine.REPOSITORY, env=environment, stderr=subprocess.PIPE, text=True)
    rows = json.loads(out.read_text())["rows"] if out.exists() else []
    if done.returncode == 0:
        return rows, ""
    last = (done.stderr.strip().splitlines() or ["no message"])[-1][:300]
    reason = f"the time limit of {arguments.limit:g} s" if done.returncode == TOO_LONG else last
    return rows, f"{name}, {mode}, ended with code {done.returncode}: {reason}"


def visible(gpu: int) -> str:
    """The name of the process's n-th GPU for CUDA_VISIBLE_DEVICES."""
    names = os.environ.get("CUDA_VISIBLE_DEVICES")
    return names.split(",")[gpu].strip() if names else str(gpu)


def measure_all(arguments: argparse.Namespace) -> int:
    count = torch.cuda.device_count()
    if not count:
        return command.failed(command.NO_GPU)
    try:
        model_run.contenders()
    except (ImportError, RuntimeError) as error:
        return command.failed(error)
    out = arguments.out or command.results_of(machine.gpu()["name"]) / "models.json"
    settings = {"seconds": arguments.seconds, "limit": arguments.limit, "part": arguments.part}
    result = report.fresh("models", settings, arguments.commit, **model_report.packages())
    found, left_out = jobs(arguments)
    if arguments.resume:
        result = report.resumed(out, result)
        measured = collections.Counter((row["model"], row["mode"]) for row in result["rows"])
        whole = {job for job in found if measured[job] == len(arguments.dtypes) * len(arguments.passes)}
        result["rows"] = [row for row in result["rows"] if (row["model"], row["mode"]) in whole]
        found = [job for job in found if job not in whole]
    result["left_out"] = left_out
    waiting: queue.SimpleQueue = queue.SimpleQueue()
    for job in found:
        waiting.put(job)
    lock = threading.Lock()
    failed = []

    def work(index: int, folder: Path) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                rows, failure = run_job(waiting.get_nowait(), index, folder, arguments)
                with lock:
                    result["rows"] += rows
                    for row in rows:
                        print(model_report.line(row), flush=True)
                    if failure:
                        failed.append(failure)
                        result["left_out"].append(failure)
                        print(failure, file=sys.stderr, flush=True)
                    report.save(out, result)

    with tempfile.TemporaryDirectory() as folder:
        workers = [threading.Thread(target=work, args=(i % count, Path(folder))) for i in range(count * PROCESSES)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    result["complete"] = not failed
    result["rows"] = model_report.ordered(result["rows"])
    report.save(out, result)
    print(model_report.text(result))
    print(f"wrote {out}")
    return 1 if failed else 0


def merge(paths: list[Path], out: Path) -> None:
    """One result from several. A row replaces the row of the same model, mode, dtype and pass in an earlier file."""
    results = [report.load(path) for path in paths]
    merged = results[0]
    rows = {model_report.key(row): row for result in results for row in result["rows"]}
    for result in results[1:]:
        if (result["gpu"]["name"], result["source"]) != (merged["gpu"]["name"], merged["source"]):
            raise ValueError("the results are of different GPUs or commits")
        merged["complete"] &= result["complete"]
    sentences = [sentence for result in results for sentence in result["left_out"]]
    merged["left_out"] = list(dict.fromkeys(sentences))
    merged["rows"] = model_report.ordered(list(rows.values()))
    report.save(out, merged)


def dry(arguments: argparse.Namespace) -> int:
    """Every model in tiny sizes on the CPU, in this process and without override. Prints a line for each."""
    torch.set_num_threads(1)  # the tensors are so small that waking threads costs more than it saves
    failed = 0
    for name in arguments.names:
        model = zoo.models()[name]
        if reason := model.missing():
            print(reason)
            continue
        options = {"contexts": {model_run.BASELINE: contextlib.nullcontext}, "seconds": 0.0, "save": lambda row: None}
        try:
            base = model.task(tiny=True)
            rows = model_run.run(model, base, "eager", arguments.dtypes, arguments.passes, "cpu", **options)
        except Exception as error:
            print(f"{name}: {model_run.sentence(error)}", file=sys.stderr)
            failed += 1
            continue
        for row in rows:
            print(model_report.line(row))
            failed += row["contenders"][model_run.BASELINE]["status"] != "ok"
    return 1 if failed else 0


def show_list(names: list[str]) -> None:
    for name in names:
        model = zoo.models()[name]
        print(f"{name:20} {model.title}: {model.sizes}{' (' + reason + ')' if (reason := model.missing()) else ''}")


def parse(argv: list[str]) -> argparse.Namespace:
    parser = command.measuring("models", __doc__, "/models.json", resume="models")
    known = zoo.models()
    dtypes = list(model_run.DTYPES)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}")
    parser.add_argument("--modes", nargs="+", choices=model_run.MODES, default=list(model_run.MODES))
    parser.add_argument("--dtypes", nargs="+", choices=dtypes, default=dtypes)
    parser.add_argument("--passes", nargs="+", choices=model_run.PASSES, default=list(model_run.PASSES))
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each contender of each measurement")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for a model in one mode")
    parser.add_argument("--part", metavar="I/N", help="every N-th model and mode from the I-th on, counted from 0")
    parser.add_argument("--list", action="store_true", help="print the models and stop")
    parser.add_argument("--dry", action="store_true", help="tiny sizes on the CPU, without override")
    parser.add_argument("--merge", nargs="+", type=Path, metavar="JSON", help="join results into --out")
    parser.add_argument("--job", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--lock", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    command.check_names(parser, "model", arguments.names, known)
    if arguments.merge and not arguments.out:
        parser.error("--merge needs --out")
    arguments.names = arguments.names or list(known)
    return arguments


def main(argv: list[str]) -> int:
    arguments = parse(argv)
    if arguments.list:
        show_list(arguments.names)
    elif arguments.dry:
        return dry(arguments)
    elif arguments.job:
        measure(arguments)
    elif arguments.merge:
        try:
            merge(arguments.merge, arguments.out)
        except ValueError as error:
            return command.failed(error)
    else:
        return measure_all(arguments)
    return 0
