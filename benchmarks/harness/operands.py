"""The tensors that cases are made of."""

import torch

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
DTYPE_NAMES = {
    F32: "f32",
    F16: "f16",
    BF16: "bf16",
    torch.float64: "f64",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.bool: "bool",
    torch.complex64: "c64",
    torch.complex128: "c128",
}
NCHW = (64, 256, 56, 56)


class Maker:
    """Makes new random operands of one dtype.

    Floats are normal, or with ``uniform`` in [0, 1), so that their sums are well conditioned. Integers are so small that no product
    overflows. On the meta device nothing is allocated: that is how the bytes of a case are counted.
    """

    def __init__(self, device: str, dtype: torch.dtype, seed: int, uniform: bool = False):
        self.device, self.dtype = device, dtype
        self.draw = torch.rand if uniform else torch.randn
        self.generator = None if device == "meta" else torch.Generator(device).manual_seed(seed)

    def __call__(self, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        dtype = dtype or self.dtype
        if self.device == "meta":
            return torch.empty(shape, dtype=dtype, device="meta")
        if dtype.is_floating_point or dtype.is_complex:
            return self.draw(shape, dtype=dtype, device=self.device, generator=self.generator)
        high = {torch.bool: 2, torch.int8: 12}.get(dtype, 16)
        return torch.randint(0, high, shape, dtype=dtype, device=self.device, generator=self.generator)

    def signs(self, *shape: int) -> torch.Tensor:
        """Random +1 and -1. Repeated multiplication in place by them neither overflows nor vanishes."""
        if self.device == "meta":
            return self.empty(*shape)
        bits = torch.randint(0, 2, shape, dtype=torch.int8, device=self.device, generator=self.generator)
        return bits.mul_(2).sub_(1).to(self.dtype)

    def empty(self, *shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=self.dtype, device=self.device)

    def channels_last(self, *shape: int) -> torch.Tensor:
        return self(*shape).contiguous(memory_format=torch.channels_last)

    def misaligned(self, count: int) -> torch.Tensor:
        return self(count + 1)[1:]

    def columns(self, rows: int, used: int, width: int) -> torch.Tensor:
        return self(rows, width)[:, :used]


def described(args: tuple, dtype: str) -> list:
    """The arguments of a case as JSON: of a tensor its shape and strides, its offset if it is not 0, and its dtype if it is not ``dtype``.
    A dtype is its name."""

    def of(arg):
        if isinstance(arg, torch.dtype):
            return DTYPE_NAMES[arg]
        if not isinstance(arg, torch.Tensor):
            return arg
        made = {"shape": list(arg.shape), "strides": list(arg.stride())}
        made |= {"offset": arg.storage_offset()} if arg.storage_offset() else {}
        return made | ({"dtype": DTYPE_NAMES[arg.dtype]} if DTYPE_NAMES[arg.dtype] != dtype else {})

    return [of(arg) for arg in args]


def restored(row: dict) -> tuple:
    """The arguments of a row. Tensors are on the meta device; all else is as ``described`` has it."""
    dtypes = {name: dtype for dtype, name in DTYPE_NAMES.items()}

    def of(shape: list[int], strides: list[int], offset: int = 0, dtype: str = row["dtype"]) -> torch.Tensor:
        end = offset + 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if n)
        return torch.empty(end, dtype=dtypes[dtype], device="meta").as_strided(shape, strides, offset)

    return tuple(of(**arg) if isinstance(arg, dict) else arg for arg in row["args"])
