"""Which layers of a model compute channels last, decided from what they hand to each other.

A layer that is faster channels last may still cost a model time: its input and its result are converted wherever a neighbour does not
have that layout. Who the neighbours are is not known from the layers. It is observed in the first calls of a model:

1. *Trial*. Every layer for which it could be worth it computes channels last. Each one notes whether its input arrived channels last,
   and, in training, how the gradient of its result arrived. ``chunk``, for example, returns a contiguous gradient.
2. *Choice*. A run is a maximal sequence of channels-last layers, in the order of their calls, whose inputs arrived channels last. In
   each run the layers that stay are the cheapest assignment. It charges every conversion that was seen to be made, or that may be made
   at the end of the run. So a run stays only if its layers together gain more than its conversions cost.
3. The choice is observed again, until no run changes. Then its layers are settled. They observe nothing more.

Layers only ever leave a run, so this ends.

A residual connection adds in the layout of its first operand. A layer whose very result the next layer converts therefore converts it
itself. It ``gives`` channels last. The next layer tells it so.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

from torch import Tensor

from torch_ops._layout_cache import Times

__all__ = ["Decision", "Visit", "observe"]

# What a channels-last layer must gain: more than two measurements of the same kernel differ, and what the kernels between layers may
# lose. WaveNet, whose layers take the same time in both layouts, was 13 % slower with all of them channels last (inference, H200).
MARGIN = 1.1
# The most times that the choice of a layer is observed.
MOST_ROUNDS = 8
# A layer begins to give its result channels last in the first passes only.
MOST_GIVING_ROUNDS = 2
_LONGEST = 4096  # layers


class Decision:
    """The layout of a module for one problem, and whether it ``gives`` its result channels last.

    ``channels_last`` is None if the layer's layout makes no difference or is not known. ``backward`` tells whether any gradient is needed.
    """

    __slots__ = ("__weakref__", "backward", "channels_last", "gives", "own", "own_last", "rounds", "settled", "times")

    def __init__(self, times: Times | None, backward: bool = False) -> None:
        self.times, self.backward = times, backward
        self.channels_last = times.may_be_faster() if times else None
        self.own, self.own_last = times.own if times else (True, True)
        self.gives, self.settled, self.rounds = False, False, 0


class Visit:
    """One observed call of a layer, and what it cost or would cost in milliseconds."""

    __slots__ = ("arrived", "decision", "gradient")

    def __init__(self, decision: Decision, arrived: bool) -> None:
        self.decision = decision
        self.arrived = arrived  # whether the input was channels last, and not only because the layer before gave it so
        self.gradient: bool | None = None  # whether the gradient of the result was channels last

    def note_gradient(self, gradient: Tensor, is_channels_last: Callable[[Tensor], bool]) -> None:
        self.gradient = is_channels_last(gradient)

    @property
    def entry(self) -> float:
        return self.decision.times.input

    @property
    def _one_way(self) -> float:
        """A conversion of the result, without that of its gradient."""
        return self.decision.times.result / (1 + self.decision.backward)

    @property
    def end(self) -> float:
        """What the layer's channels-last result costs where it is not used as such."""
        seen = self.decision.backward and self.gradient is not None
        return self._one_way if seen else self.decision.times.result

    @property
    def contiguous(self) -> float:
        return self.decision.times.contiguous

    @property
    def channels_last(self) -> float:
        converts_gradient = self.decision.backward and self.gradient is False
        return self.decision.times.channels_last * MARGIN + self._one_way * converts_gradient


def _runs(visits: list[Visit]) -> list[tuple[list[Visit], float]]:
    """The runs of channels-last layers, each with the cost of its last result's conversion."""
    runs: list[list[Visit]] = []
    ends: list[float] = []
    before: Visit | None = None
    for visit in visits:
        follows = before is not None and before.decision.channels_last and visit.arrived
        if visit.decision.channels_last:
            if follows:
                runs[-1].append(visit)
            else:
                runs.append([visit])
                ends.append(0.0)
            ends[-1] = visit.end
        elif follows and visit.decision.times is not None:
            ends[-1] = visit.entry  # which the contiguous layer makes itself
        before = visit
    return list(zip(runs, ends, strict=True))


def _cheapest(run: list[Visit], end: float) -> list[bool]:
    """Which layers of a run compute channels last at the lowest cost: a shortest path through two layouts."""
    arrived = run[0].arrived
    costs = [run[0].entry * arrived, run[0].entry * (not arrived)]
    came: list[tuple[bool, bool]] = []
    for visit in run:
        if came:
            stay, change = costs, [costs[1] + visit.entry, costs[0] + visit.entry]
            came.append((change[0] < stay[0], stay[1] <= change[1]))
            costs = [min(stay[0], change[0]), min(stay[1], change[1])]
        else:
            came.append((False, True))
        costs = [costs[0] + visit.contiguous, costs[1] + visit.channels_last]
    layout = costs[1] + end < costs[0]
    chosen = []
    for step in reversed(came):
        chosen.append(layout)
        layout = step[layout]
    return chosen[::-1]


class _Trail(threading.local):
    """What this thread observes: the visits of one pass through a model, the last result with its layer's decision, and all results that
    layers gave channels last."""

    def __init__(self) -> None:
        self.visits: list[Visit] = []
        self.seen: set[Decision] = set()
        self.learned = False  # whether a layer began or ceased to give in this pass
        self.result: Callable[[], Tensor | None] = lambda: None
        self.layer: Decision | None = None
        self.given: list[tuple[Callable[[], Tensor | None], Decision]] = []

    def choose(self) -> None:
        """Ends a pass, and chooses again by what it showed."""
        for visit in self.visits:
            visit.decision.rounds += 1
        if not self.learned:
            changed = False
            for run, end in _runs(self.visits):
                for visit, stays in zip(run, _cheapest(run, end), strict=True):
                    changed |= visit.decision.channels_last is not stays
                    visit.decision.channels_last = stays
            for decision in self.seen:
                decision.settled |= not changed
        for decision in self.seen:
            decision.settled |= decision.rounds >= MOST_ROUNDS
        self.visits, self.seen, self.learned, self.given = [], set(), False, []

    def giver_of(self, signal: Tensor) -> Decision | None:
        """Who gave this very tensor channels last."""
        return next((decision for result, decision in self.given if result() is signal), None)


_trail = _Trail()


def observe(
    decision: Decision, signal: Tensor, compute: Callable[[], Tensor], is_channels_last: Callable[[Tensor], bool]
) -> Tensor:
    """Calls ``compute()`` of a layer that is not settled, and notes what there is to see."""
    trail = _trail
    if decision in trail.seen or len(trail.visits) >= _LONGEST:
        trail.choose()
    arrives = is_channels_last(signal)
    giver = trail.giver_of(signal) if arrives else None
    visit = Visit(decision, arrives and giver is None)
    trail.visits.append(visit)
    trail.seen.add(decision)
    if giver is not None and decision.channels_last is False:
        giver.gives, trail.learned = False, True
    elif (
        decision.channels_last and not arrives and trail.result() is signal and trail.layer.rounds < MOST_GIVING_ROUNDS
    ):
        # A tensor that two layers want in two layouts must not change its layout in every pass, hence the limit.
        trail.layer.gives, trail.learned = True, True
    result = compute()
    if result.requires_grad and is_channels_last(result):
        result.register_hook(lambda gradient: visit.note_gradient(gradient, is_channels_last))
    trail.result, trail.layer = weakref.ref(result), decision
    if decision.gives:
        trail.given.append((trail.result, decision))
    return result
