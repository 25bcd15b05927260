"""Which layers of a model compute channels last, decided from what they hand to each other.

A layer that is faster channels last may still cost a model time: its input and its result are converted wherever a neighbour does not
have that layout. Who the neighbours are is not known from the layers. It is observed in passes through the model (trial.py).

A chain is a maximal sequence of channels-last layers, in the order of their calls, whose inputs arrived channels last. In each chain the
layers that stay are the cheapest assignment. It charges every conversion that was seen to be made, or that may be made at the end of
the chain. So a chain stays only if its layers together gain more than its conversions cost. Layers only ever leave a chain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch_ops.layout.convolution import Times

__all__ = ["Visit", "choose"]

# What a channels-last layer must gain: more than two measurements of the same kernel differ, and what the kernels between layers may
# lose. WaveNet, whose layers take the same time in both layouts, was 13 % slower with all of them channels last (inference, H200).
MARGIN = 1.1


class Layer(Protocol):
    channels_last: bool | None


@dataclass
class Visit:
    """One observed call of a layer, and what it cost or would cost in milliseconds. Without times, its layout makes no difference."""

    layer: Layer
    times: Times | None
    backward: bool = False  # whether any gradient is needed
    arrived: bool = False  # whether the input was channels last, and not only because the layer before gave it so
    gradient: bool | None = None  # whether the gradient of the result was channels last, if it was seen

    @property
    def channels_last(self) -> bool | None:
        return self.layer.channels_last if self.times else None

    @property
    def spent(self) -> Times:
        """The times of a layer in a chain, which has been measured."""
        assert self.times is not None
        return self.times

    @property
    def _one_way(self) -> float:
        """A conversion of the result, without that of its gradient."""
        return self.spent.result / (1 + self.backward)

    @property
    def end(self) -> float:
        """What the layer's channels-last result costs where it is not used as such."""
        seen = self.backward and self.gradient is not None
        return self._one_way if seen else self.spent.result

    @property
    def cost(self) -> float:
        """Of the channels-last layer."""
        converts_gradient = self.backward and self.gradient is False
        return self.spent.channels_last * MARGIN + self._one_way * converts_gradient


def choose(visits: list[Visit]) -> bool:
    """Lets layers leave the chains that a pass showed. Whether any did. A layer that was called twice stays if it does in both calls."""
    leaving = [
        visit.layer
        for chain, end in _chains(visits)
        for visit, stays in zip(chain, _cheapest(chain, end), strict=True)
        if not stays
    ]
    for layer in leaving:
        layer.channels_last = False
    return bool(leaving)


def _chains(visits: list[Visit]) -> list[tuple[list[Visit], float]]:
    """The chains of channels-last layers, each with the cost of its last result's conversion."""
    chains: list[list[Visit]] = []
    ends: list[float] = []
    before: Visit | None = None
    for visit in visits:
        follows = before is not None and before.channels_last and visit.arrived
        if visit.channels_last:
            if follows:
                chains[-1].append(visit)
            else:
                chains.append([visit])
                ends.append(0.0)
            ends[-1] = visit.end
        elif follows and visit.times is not None:
            ends[-1] = visit.spent.input  # which the contiguous layer makes itself
        before = visit
    return list(zip(chains, ends, strict=True))


def _cheapest(chain: list[Visit], end: float) -> list[bool]:
    """Which layers of a chain compute channels last at the lowest cost: a shortest path through two layouts."""
    arrived = chain[0].arrived
    costs = [chain[0].spent.input * arrived, chain[0].spent.input * (not arrived)]
    came: list[tuple[bool, bool]] = []
    for visit in chain:
        if came:
            stay, change = costs, [costs[1] + visit.spent.input, costs[0] + visit.spent.input]
            came.append((change[0] < stay[0], stay[1] <= change[1]))
            costs = [min(stay[0], change[0]), min(stay[1], change[1])]
        else:
            came.append((False, True))
        costs = [costs[0] + visit.spent.contiguous, costs[1] + visit.cost]
    layout = costs[1] + end < costs[0]
    chosen = []
    for step in reversed(came):
        chosen.append(layout)
        layout = step[layout]
    return chosen[::-1]
