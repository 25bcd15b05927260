"""The rate of the arithmetic units, for the roofline of matmul: chains of multiply-adds from registers, and of wgmma."""

import torch

# Units by the dtype whose steps they limit. 3xTF32 needs three products of TF32.
UNITS = ("fma", "tf32", "bf16")
ITERATIONS = {"fma": 50_000, "tf32": 40_000, "bf16": 20_000}  # about 10 ms, so that the clock settles


def measure(repeats: int = 5) -> list[dict]:
    """The fastest of some runs of each unit, with the clock of an SM."""
    found = []
    like = torch.empty(0, device="cuda")
    for unit in UNITS:
        runs = []
        for _ in range(repeats):
            cycles, ns, operations = torch.ops.gpuopt_ladder.unit_rate(like, unit, ITERATIONS[unit]).tolist()
            runs.append((operations / ns / 1e3, cycles / ns))
        tflops, ghz = max(runs)
        found.append({"unit": unit, "tflops": round(tflops, 1), "ghz": round(ghz, 3)})
    return found


# The tile of outputs of a block: how often it uses a value that it reads.
TILES = {
    **dict.fromkeys(("naive", "coalesced"), (1, 1)),
    "shared_tile": (32, 32),
    "output_column": (64, 64),
    **dict.fromkeys(("output_block", "vectors", "double_buffer", "three_tf32", "three_tf32_wgmma"), (128, 128)),
    **dict.fromkeys(("warp_tiles", "bulk_copies", "split_k"), (128, 256)),
    **dict.fromkeys(("ldmatrix",), (128, 128)),
    **dict.fromkeys(("swizzled", "wgmma", "producer_consumer", "persistent"), (128, 256)),
    "clusters": (256, 256),
}


def intensity(step: str, bytes_of_value: int) -> float | None:
    """Operations of a block for each byte that it reads from global memory."""
    if step not in TILES:
        return None
    rows, columns = TILES[step]
    return 2 * rows * columns / ((rows + columns) * bytes_of_value)
