"""Cases of matmul: 300 products of models, drawn at random, in float32 and in bfloat16.

The shapes are from projections, attention, multilayer perceptrons, convolutions as products, decoding of few tokens, and their
gradients. In float32 gpuopt computes in 3xTF32 where it expects to be faster than cuBLAS, and ATen's product is IEEE float32. Peers:

- "ATen in TF32": the product that users get if they allow a relative error of 3e-4
- "bulk_copies" and "clusters": the fastest steps of the ladder in float32 and bfloat16, which need rows that begin at multiples of 16 bytes
- "Inductor": its kernels are tuned for the headline cases

    python -m benchmarks matmul --brief
"""

import dataclasses
import functools
import itertools
import random

import torch

from benchmarks.harness import report
from benchmarks.harness.operands import BF16, DTYPE_NAMES, F32, Maker
from benchmarks.harness.peers import INDUCTOR, Missing, Peer
from benchmarks.harness.room import Call, CallTime, Case, Point, Room, error_limit

PROBLEMS, SEED = 300, 0
HIDDEN = (512, 768, 1024, 1280, 1536, 2048, 2560, 3072, 4096, 5120)
TOKENS = (77, 128, 197, 256, 384, 512, 577, 1000, 1024, 1500, 2048, 3000, 4096, 8192)


@dataclasses.dataclass(frozen=True)
class Product:
    """(m, k) times (k, n). A transposed operand has its columns in memory."""

    kind: str
    m: int
    n: int
    k: int
    transposed: tuple[bool, bool] = (False, False)

    @property
    def name(self) -> str:
        marks = ["T" if t else "" for t in self.transposed]
        return f"{self.kind}: ({self.m},{self.k}){marks[0]} x ({self.k},{self.n}){marks[1]}"


def _projection(draw: random.Random) -> Product:
    hidden, tokens = draw.choice(HIDDEN), draw.choice(TOKENS)
    return Product("projection", tokens, hidden * draw.choice((1, 1, 3)), hidden, (False, True))


def _perceptron(draw: random.Random) -> Product:
    hidden, tokens = draw.choice(HIDDEN), draw.choice(TOKENS)
    wide = int(hidden * draw.choice((2, 8 / 3, 3.5, 4))) // 64 * 64
    n, k = draw.choice(((wide, hidden), (hidden, wide)))
    return Product("mlp", tokens, n, k, (False, True))


def _attention(draw: random.Random) -> Product:
    tokens, head = draw.choice(TOKENS), draw.choice((64, 80, 96, 128))
    return draw.choice(
        (Product("scores", tokens, tokens, head, (False, True)), Product("values", tokens, head, tokens))
    )


def _convolution(draw: random.Random) -> Product:
    """Output channels times positions, over input channels and taps."""
    channels, side = draw.choice(((64, 56), (128, 28), (256, 14), (512, 7), (320, 32), (640, 16)))
    inputs = draw.choice((64, 128, 256, 320, 512)) * draw.choice((1, 9))
    return Product("convolution", channels, draw.choice((1, 4, 8, 16, 32)) * side * side, inputs)


def _decoding(draw: random.Random) -> Product:
    hidden = draw.choice(HIDDEN)
    return Product(
        "decoding", draw.choice((1, 2, 4, 8, 16, 32, 64)), hidden * draw.choice((1, 3, 4)), hidden, (False, True)
    )


def _gradient(draw: random.Random) -> Product:
    """Of a weight (a long sum over tokens), or of an input."""
    hidden, tokens, wide = draw.choice(HIDDEN), draw.choice(TOKENS) * draw.choice((1, 4)), draw.choice((1, 3, 4))
    return draw.choice(
        (
            Product("weight gradient", hidden * wide, hidden, tokens, (True, False)),
            Product("input gradient", tokens, hidden, hidden * wide),
        )
    )


KINDS = (_projection, _perceptron, _attention, _convolution, _decoding, _gradient)


@functools.cache
def products() -> list[Product]:
    """Different products, about as many of each kind."""
    draw, found = random.Random(SEED), {}
    for number in itertools.count():
        found[KINDS[number % len(KINDS)](draw)] = None
        if len(found) == PROBLEMS:
            return list(found)


def _build(product: Product, dtype: torch.dtype, device: str, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    maker = Maker(device, dtype, seed)
    (m, n, k), (left, right) = (product.m, product.n, product.k), product.transposed
    return maker(k, m).t() if left else maker(m, k), maker(n, k).t() if right else maker(k, n)


# ---------------------------------------------------------------- peers


def _in_tf32(call, case, setting):
    def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        torch.backends.cuda.matmul.allow_tf32 = True
        try:
            return torch.mm(a, b)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = False

    return run, ""


def _step(name: str) -> Peer:
    """A step of the ladder, for rows of both operands that begin at multiples of 16 bytes."""

    def prepare(call, case, setting):
        from torch_ops import ladder

        a, b = case.build("meta", 0)
        for x in (a, b):
            if x.stride(1) != 1 or x.stride(0) * x.element_size() % 16:
                raise Missing("the step needs rows that begin at multiples of 16 bytes")
        return functools.partial(ladder.run, "matmul", name), "a step of the ladder"

    return Peer(name, prepare)


TF32 = Peer("ATen in TF32", _in_tf32)
PEERS = {F32: (TF32, _step("bulk_copies")), BF16: (_step("clusters"),)}
# So many products of the sample are tuned by Inductor.
TUNED = 6


def _cases() -> list[Case]:
    cases = []
    for dtype, number in ((d, i) for d in PEERS for i in range(PROBLEMS)):
        product = products()[number]
        tuned = number % (PROBLEMS // TUNED) == 0
        cases.append(
            Case(
                "matmul",
                "matmul",
                product.name,
                DTYPE_NAMES[dtype],
                functools.partial(_build, product, dtype),
                headline=tuned,
                peers=(*PEERS[dtype], *((INDUCTOR,) if tuned else ())),
                point=Point(f"{DTYPE_NAMES[dtype]}, {product.kind}", "problem", number, unit=report.RATIO),
                flops=2 * product.m * product.n * product.k,
            )
        )
    return cases


def _limit(dtype: torch.dtype, aten_error: float | None) -> float:
    """The limit of errors. It admits the peer in TF32."""
    return max(1e-3, error_limit(dtype, aten_error))


def _gpuopt_limit(dtype: torch.dtype, aten_error: float | None) -> float:
    """3xTF32 promises the accuracy of float32."""
    return max(2 * (aten_error or 0.0), torch.finfo(dtype).eps)


def _calls() -> dict[str, Call]:
    import torch_ops

    ours = functools.partial(torch_ops.matmul, precision="3xtf32")
    return {
        "matmul": Call(ours, torch.mm, lambda a, b: a.double() @ b.double(), limit=_limit, gpuopt_limit=_gpuopt_limit),
    }


def _call_times() -> list[CallTime]:
    def small(requires_grad: bool):
        def variables(device: str) -> dict:
            import torch_ops

            a, b = (torch.randn(64, 64, device=device, requires_grad=requires_grad) for _ in range(2))
            return {"torch": torch, "torch_ops": torch_ops, "a": a, "b": b}

        return variables

    calls = {"gpuopt": 'torch_ops.matmul(a, b, precision="3xtf32")', "ATen": "torch.matmul(a, b)"}
    return [
        CallTime("matmul", "no grad", calls, small(False)),
        CallTime("matmul", "building a graph", calls, small(True)),
    ]


ROOM = Room(name="matmul", cases=_cases(), calls=_calls, call_times=_call_times(), peers=())
