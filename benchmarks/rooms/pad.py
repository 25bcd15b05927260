"""Cases of pad: signals and images with constant, reflected and replicated borders, and gradients of these."""

import torch

from benchmarks.harness.operands import BF16, DTYPE_NAMES, F32, Maker
from benchmarks.harness.peers import INDUCTOR
from benchmarks.harness.room import Call, CallTime, Case, Room

# (shape, pad) by mode.
PROBLEMS = {
    "constant": (
        ((16, 512, 8000), (3, 3)),
        ((32, 1, 480_000), (1, 0)),
        ((32, 64, 56, 56), (1, 1, 1, 1)),
        ((8, 3, 256, 256), (0, 1, 0, 1)),
        ((16, 512, 8000), (-3, -3)),
    ),
    "reflect": (((32, 1, 480_000), (200, 200)), ((8, 64, 128, 128), (1, 1, 1, 1)), ((4, 3, 256, 256), (3, 3, 3, 3))),
    "replicate": (((16, 512, 8000), (5, 5)), ((2, 16, 32, 64, 64), (1,) * 6)),
    "circular": (((8, 64, 128, 128), (1, 1, 1, 1)),),
}


def _text(shape: tuple) -> str:
    return str(shape).replace(" ", "")


def _cases() -> list[Case]:
    cases = []
    for mode, problems in PROBLEMS.items():
        for shape, pad in problems:
            for dtype in (F32, BF16):

                def build(device: str, seed: int, shape=shape, dtype=dtype, pad=pad, mode=mode) -> tuple:
                    return Maker(device, dtype, seed)(*shape), pad, mode

                cases.append(
                    Case(
                        "pad", "pad", f"{mode} {_text(shape)} by {_text(pad)}", DTYPE_NAMES[dtype], build, headline=True
                    )
                )
    return cases


def _calls() -> dict[str, Call]:
    import torch_ops

    return {"pad": Call(torch_ops.pad, torch.nn.functional.pad, torch.nn.functional.pad)}


def _call_times() -> list[CallTime]:
    def small(device: str) -> dict:
        import torch_ops

        return {"torch": torch, "torch_ops": torch_ops, "x": torch.randn(4, 8, 64, device=device)}

    calls = {"gpuopt": "torch_ops.pad(x, (1, 1))", "ATen": "torch.nn.functional.pad(x, (1, 1))"}
    return [CallTime("pad", "no grad", calls, small)]


ROOM = Room(name="pad", cases=_cases(), calls=_calls, call_times=_call_times(), peers=(INDUCTOR,))
