"""Records a call: observes it, records it, compares the replay with eager calls, and measures both."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torch_ops._cuda_graph import ambient
from torch_ops._cuda_graph.backend import Backend, Pool, seconds
from torch_ops._cuda_graph.check import Values, mismatch, repeats, unrepeatable
from torch_ops._cuda_graph.known import Known
from torch_ops._cuda_graph.observe import Observer
from torch_ops._cuda_graph.preserve import Preserved, host_random_state
from torch_ops._cuda_graph.replay import Recorded
from torch_ops._cuda_graph.results import Declined, Results
from torch_ops._cuda_graph.snapshot import Snapshot
from torch_ops._cuda_graph.step import BackwardMode, Step
from torch_ops._cuda_graph.structures import Constants
from torch_ops._cuda_graph.tensors import clones

__all__ = ["Measured", "record", "verify"]

# A replay is kept if it takes at most this share of the eager call.
LONGEST = 1.0


@dataclass(frozen=True)
class Measured:
    """Seconds of an eager call, of a replay with its copies, and of all that it took to record it."""

    eager: float
    replay: float
    recording: float


def record(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    tensors: Sequence[Tensor],
    snapshot: Snapshot,
    constants: Collection[int],
    mode: BackwardMode,
    pool: Pool,
    backend: Backend,
) -> tuple[Recorded, Measured]:
    """Records a call in a pool. Random numbers, buffers and attributes are as before.

    Raises:
        Declined: The call can't be recorded, or a replay would be wrong or slower.
        Constants: The recording would be good for the numbers in some arguments alone, which ``constants`` does not name.
    """
    began = time.perf_counter()
    if snapshot.problem:
        raise Declined(snapshot.problem)
    if snapshot.hooked:
        raise Declined(f"{snapshot.hooked} has hooks")
    if any(x.device.type == backend.device_type and x.device != backend.device() for x in snapshot.tensors):
        raise Declined("its tensors are on several devices, or not on the current one")
    step = Step(args, kwargs, tensors, snapshot, backend.device_type, constants)
    states = [x for x in snapshot.tensors if not isinstance(x, torch.nn.Parameter)]
    preserved = Preserved(snapshot.modules, states, backend)
    trial = _Trial(function, step, snapshot, mode, preserved, backend)
    try:
        with ambient.eager():
            recorded = trial.observe_and_record(pool, constants)
            measured = trial.measure(recorded)
    except torch.OutOfMemoryError as error:
        raise Declined("not enough memory to record it", parts=False) from error
    finally:
        preserved.restore()
    return recorded, Measured(*measured, time.perf_counter() - began)


class _Trial:
    def __init__(
        self,
        function: Callable[..., Any],
        step: Step,
        snapshot: Snapshot,
        mode: BackwardMode,
        preserved: Preserved,
        backend: Backend,
    ) -> None:
        self.function, self.step, self.snapshot, self.mode = function, step, snapshot, mode
        self.preserved, self.backend = preserved, backend
        self.given: list[Tensor | None] = []
        self.written: list[Tensor] = []
        self.versioned: list[Tensor] = []

    def observe_and_record(self, pool: Pool, constants: Collection[int]) -> Recorded:
        # This pass has the parameters themselves, so it runs on the stream of earlier calls: autograd warns of another one.
        once, results = self._observed()
        structures = self.step.structures
        if structures.problem:
            raise Declined(structures.problem)
        if not structures.inputs.issubset(constants):
            raise Constants(structures.inputs)
        structures.complete()
        with self.backend.aside():
            again, results_again = self._eager_pass(stands_in=True)
        if not results.is_like(results_again):
            raise Declined("two equal calls return other structures, shapes or values")
        if problem := unrepeatable(once, again):
            raise Declined(problem)
        if repeats(once, again):
            again = once  # saves memory
        del results, results_again
        recorded = self._recorded(pool)
        self._replay_and_compare(recorded, once, again)
        return recorded

    # ------------------------------------------------------------ eager calls

    def _observed(self) -> tuple[Values, Results]:
        """The first call, in which everything is watched."""
        step, snapshot, backend = self.step, self.snapshot, self.backend
        observer = Observer(backend.device_type, step.inputs, snapshot.tensors, step.structures.made)
        host, device = host_random_state(backend), backend.generator().get_state()
        inputs, parameters = ([x._version for x in xs] for xs in (step.inputs, snapshot.tensors))
        try:
            with observer.saving(), observer:
                results = step.forward(self.function)
        finally:
            observer.restore()
        self.is_random = not torch.equal(device, backend.generator().get_state())
        if not snapshot.matches():
            what = snapshot.changed()
            raise Declined(f"its forward pass writes to {f'the attribute {what}' if what else 'its attributes'}")
        if host_random_state(backend) != host or self.preserved.draws_random_numbers():
            raise Declined("its forward pass draws random numbers of the host")
        results.check(step.inputs, snapshot.tensors)
        self._choose_gradients(results)
        buffers = self._written_values()
        for gradient in self.given:
            if gradient is not None:
                observer.note(gradient)
        with observer:
            gradients = self._gradients(results)
        if observer.reason:
            raise Declined(observer.reason)
        self.reads, self.known = observer.reads, observer.origins
        if [x._version for x in step.inputs] != inputs:
            raise Declined("it writes to an argument")
        written = {id(x) for x in (*self.written, *self.versioned)}
        if observer.overwritten or any(
            x._version != v and id(x) not in written for x, v in zip(snapshot.tensors, parameters)
        ):
            raise Declined("it writes to a parameter")
        self._check_gradients(gradients)
        self.saved = list(observer.saved.values())
        for buffer in self.known.read.values():
            if id(buffer) in written:
                self.reads = self.reads or "of a buffer that it writes to"
            step.structures.depend_on(buffer)
        values = self._values(results, gradients, buffers)
        self.preserved.restore()
        return values, results

    def _written_values(self) -> list[Tensor]:
        if not self.written:
            self.written, self.versioned = self.preserved.written(), self.preserved.versioned()
        return clones([x.detach() for x in self.written])

    def _choose_gradients(self, results: Results) -> None:
        """Random gradients for the outputs that get one."""
        given = self.mode.given
        if given is None or len(given) != len(results.outputs):
            given = (True,) * len(results.outputs)
        wants = bool(self.step.wanted_inputs or self.step.parameters)
        if not wants and any(output.requires_grad for output in results.outputs):
            raise Declined("its results have gradients of tensors that are neither arguments nor parameters")
        self.given = [
            torch.randn_like(output) if yes and wants and output.requires_grad else None
            for output, yes in zip(results.outputs, given)
        ]
        self.mode = BackwardMode(tuple(g is not None for g in self.given), self.mode.autocast)

    def _gradients(self, results: Results, stands_in: bool = False) -> list[Tensor | None]:
        if not any(self.mode.given or ()):
            return []
        return self.step.backward(results, self.given, self.mode.autocast, stands_in)

    def _check_gradients(self, gradients: Sequence[Tensor | None]) -> None:
        for gradient in gradients:
            if gradient is not None and gradient.layout is not torch.strided:
                raise Declined("a gradient is sparse")

    def _values(self, results: Results, gradients: Sequence[Tensor | None], buffers: Sequence[Tensor]) -> Values:
        return Values(
            [x.detach() for x in results.outputs], [g if g is None else g.detach() for g in gradients], buffers
        )

    def _eager_pass(self, stands_in: bool = False) -> tuple[Values, Results]:
        results = self.step.forward(self.function, stands_in)
        buffers = self._written_values()
        values = self._values(results, self._gradients(results, stands_in), buffers)
        self.preserved.restore()
        return values, results

    # ------------------------------------------------------------ the recording

    def _recorded(self, pool: Pool) -> Recorded:
        step, backend = self.step, self.backend
        passes: dict[str, Results] = {}  # the last forward pass, which the backward pass needs

        def forward() -> list[Tensor]:
            known = Known(self.known) if self.known.values and not self.reads else contextlib.nullcontext()
            with known:
                passes["last"] = step.forward(self.function, stands_in=True)
            return [output.detach() for output in passes["last"].outputs]

        def backward() -> list[Tensor | None]:
            return step.backward(passes["last"], self.given, self.mode.autocast, stands_in=True)

        try:
            recording, outputs = backend.record(forward, pool)
            recorded = Recorded(step, pool, backend, recording, passes["last"], outputs, self.is_random)
            if any(self.mode.given or ()):
                recorded.backward, gradients = backend.record(backward, pool)
                recorded.gradients = [g if g is None else backend.borrowed(g.detach()) for g in gradients]
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
            line = str(error).strip().partition("\n")[0]
            reads = f"the host reads values of a tensor ({self.reads}); " if self.reads else ""
            raise Declined(f"{reads}recording failed: {type(error).__name__}: {line[:200]}") from None
        finally:
            self.preserved.restore()
        recorded.given, recorded.mode = self.given, self.mode
        recorded.written, recorded.versioned, recorded.saved = self.written, self.versioned, self.saved
        recorded.read = self._read()
        return recorded

    def _read(self) -> list[Tensor]:
        """The written buffers without the statistics of batch norms, which training doesn't read."""
        norms = [m for m in self.snapshot.modules if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
        statistics = {id(x) for module in norms for x in module._buffers.values() if module.training}
        return [x for x in self.written if id(x) not in statistics]

    def _replay_and_compare(self, recorded: Recorded, once: Values, again: Values) -> None:
        replayed = _replayed(recorded, self.given)
        self.preserved.restore()
        if problem := mismatch(once, again, replayed):
            raise Declined(f"a replay differs: {problem}")

    # ------------------------------------------------------------ times

    def measure(self, recorded: Recorded) -> tuple[float, float]:
        """Seconds of an eager call and of a replay."""
        sources = clones([x.detach() for x in self.step.inputs])

        def eager() -> None:
            self._gradients(self.step.forward(self.function))

        def replay() -> None:
            recorded.step.load(sources)
            _replayed(recorded, self.given)

        eager_time, replay_time = seconds(eager, self.backend), seconds(replay, self.backend)
        if replay_time > LONGEST * eager_time:
            # Once more, because something else may have run on the host.
            eager_time, replay_time = seconds(eager, self.backend, 6), seconds(replay, self.backend, 6)
        self.step.load(sources)
        if replay_time > LONGEST * eager_time:
            raise Declined(
                f"a replay takes {1e3 * replay_time:.2f} ms, an eager call {1e3 * eager_time:.2f} ms", parts=False
            )
        return eager_time, replay_time


def _replayed(recorded: Recorded, given: Sequence[Tensor | None]) -> Values:
    with torch.no_grad():
        outputs = recorded.replay_forward()
        buffers = clones([x.detach() for x in recorded.written])
        gradients = recorded.replay_backward(given) if recorded.backward is not None else []
    return Values(outputs, gradients, buffers)


def verify(recorded: Recorded, function: Callable[..., Any], tensors: Sequence[Tensor]) -> str:
    """Compares a replay on new arguments with two eager calls. What differs, or "". All state is as before."""
    step, backend, snapshot = recorded.step, recorded.backend, recorded.step.snapshot
    states = [x for x in snapshot.tensors if not isinstance(x, torch.nn.Parameter)]
    preserved = Preserved(snapshot.modules, states, backend)
    trial = _Trial(function, step, snapshot, recorded.mode, preserved, backend)
    trial.given = [g if g is None else torch.randn_like(g) for g in recorded.given]
    trial.written, trial.versioned = recorded.written, recorded.versioned
    step.load(tensors)
    try:
        with ambient.eager():
            preserved.restore()
            once, _ = trial._eager_pass()
            again, _ = trial._eager_pass()
            if unrepeatable(once, again):
                return ""  # arguments whose results are mostly noise
            preserved.restore()
            return mismatch(once, again, _replayed(recorded, trial.given))
    finally:
        preserved.restore()
