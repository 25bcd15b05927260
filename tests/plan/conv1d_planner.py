"""What the tests of the planner of convolutions share: the library, made of conv1d_shim.cpp, and problems to ask it about."""

from __future__ import annotations

import ctypes

FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT = PASSES = range(3)
LIBRARY, ROWS, FAN, COLUMNS, VALUES, CHUNKS, FAN_GRADIENTS, GEMM = range(8)
FLOAT16, BFLOAT16, FLOAT32, FLOAT64 = 6, 7, 8, 9
ITEM = {FLOAT16: 2, BFLOAT16: 2, FLOAT32: 4, FLOAT64: 8}
BASE = 1 << 40


def fields(names: str) -> list:
    return [(name, ctypes.c_int64) for name in names.split()]


class PlanView(ctypes.Structure):
    _fields_ = fields(
        "path channels wide slides packed dilated strided few_taps direct polyphase matrices few_values channels_first places row_width phases phase_segments phase_pitch stages cycle tiles row_tiles row_lanes rows block_rows halo_packs taps_pitch "
        "warp_tiles made_packs warp_packs products aligned block_channels taps tap_parts splits lanes blocks threads shared_bytes"
    )

    def __repr__(self):
        return f"Plan({', '.join(f'{name}={getattr(self, name)}' for name, _ in self._fields_)})"


class Signal(ctypes.Structure):
    _fields_ = fields("data batch_stride channel_stride stride channels size")

    def address(self, item: int, image: int, channel: int) -> int:
        return self.data + (image * self.batch_stride + channel * self.channel_stride) * item


class Problem(ctypes.Structure):
    _fields_ = [("from_", Signal), ("to", Signal)]
    _fields_ += fields("weight group_stride out_stride in_stride tap_stride bias bias_stride")
    _fields_ += fields("dtype batch groups taps step padding dilation activation")

    def __repr__(self):
        def of(struct):
            return ", ".join(
                f"{name}={getattr(struct, name)}" for name, kind in struct._fields_ if kind is ctypes.c_int64
            )

        return f"Problem(from=({of(self.from_)}), to=({of(self.to)}), {of(self)})"

    @property
    def item(self) -> int:
        return ITEM[self.dtype]

    @property
    def compute(self) -> int:
        return max(self.item, 4)

    @property
    def gap(self) -> int:
        """Places from a tap to the next: a dilation is of no account where there is one tap."""
        return self.dilation if self.taps > 1 else 1

    @property
    def span(self) -> int:
        """Places from the first tap to the last."""
        return (self.taps - 1) * self.dilation

    def plan(
        self,
        planner,
        which: int = FORWARD,
        sms: int = 132,
        shared: int = 227 << 10,
        few: bool = False,
        fan: bool = False,
        gemm: bool = False,
    ) -> PlanView:
        """Of few values only if `few`, gradients of many channels only if `fan`, and products of matrices that gather only if `gemm`: these
        would take most problems that are easy to read."""
        view = PlanView()
        planner.plan(ctypes.byref(self), which, sms, shared, few, fan, gemm, ctypes.byref(view))
        return view

    def serves(
        self, planner, which: int, sms: int = 132, few: bool = False, fan: bool = False, gemm: bool = False
    ) -> bool:
        return bool(planner.serves_it(ctypes.byref(self), which, sms, few, fan, gemm))

    def transposed(self, planner) -> Problem:
        result = Problem()
        planner.transpose(ctypes.byref(self), ctypes.byref(result))
        return result


def strides_of(layout: str, channels: int, size: int, values: int) -> tuple:
    whole, whole_channels = -(-size // values) * values, -(-channels // values) * values
    return {
        "rows": (channels * size, size, 1),
        "whole rows": (channels * whole, whole, 1),
        "channels last": (channels * size, 1, channels),
        "whole channels": (size * whole_channels, 1, whole_channels),
        "strided": (2 * channels * size, 2 * size, 2),
        "expanded": (0, 0, 0),
    }[layout]


def problem_of(
    batch, groups, channels, size, taps, dtype=FLOAT32, step=1, padding=0, dilation=1, layouts=("rows", "rows"), offsets=(0, 0), right=None
) -> Problem:  # fmt: skip
    """`channels` of a group, in and out; as much padding on the right as on the left unless given; offsets are in elements, from an
    aligned address."""
    right = padding if right is None else right
    out_size = (max(size + padding + right - (taps - 1) * dilation, 1) - 1) // step + 1
    signals = []
    for i, length in enumerate((size, out_size)):
        strides = strides_of(layouts[i], groups * channels[i], length, 16 // ITEM[dtype])
        signals.append(Signal((i + 1) * BASE + offsets[i] * ITEM[dtype], *strides, channels[i], length))
    ci, co = channels
    return Problem(
        *signals, 3 * BASE, co * ci * taps, ci * taps, taps, 1, 0, 1, dtype, batch, groups, taps, step, padding, dilation, 0
    )  # fmt: skip
