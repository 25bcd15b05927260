"""The files of a partition, one for each rank: ``rank-2-of-4.gpuopt``.

========== =========================================================================================================
bytes      content, little-endian
========== =========================================================================================================
8          ``GPUOPTGP``
3 x 4      version, the length of the header, the CRC-32 of the header
header     JSON: the attributes of a partition, and of each block its offset, bytes, CRC-32 and digest
blocks     int32, each as a partition has it: where rows begin, and the targets of all rows
========== =========================================================================================================

A file is complete when it has its name: it is written under another one first.
"""

from __future__ import annotations

import json
import os
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torch_ops.distributed._deal import Block, Deal

MAGIC = b"GPUOPTGP"
VERSION = 1
PREFIX = struct.Struct("<8s3I")
NAME = re.compile(r"rank-\d+-of-(\d+)\.gpuopt")


class PartitionFileError(ValueError):
    """A file is not the one of a partition that was expected. The message names it."""


def name_of(rank: int, ranks: int) -> str:
    return f"rank-{rank}-of-{ranks}.gpuopt"


# ---------------------------------------------------------------- writing


def _bytes_of(numbers: torch.Tensor) -> memoryview:
    found: Any = np.ascontiguousarray(numbers.cpu().numpy(), dtype="<i4")
    return memoryview(found).cast("B")


def save(partition: Any, folder: Path) -> Path:
    """Writes a Partition, whose module is above this one."""
    folder.mkdir(parents=True, exist_ok=True)
    blocks, offset = [], 0
    for block, numbers in partition.blocks.items():
        crc = zlib.crc32(_bytes_of(numbers))
        blocks.append([*block, offset, numbers.nbytes, crc, partition.digests[block]])
        offset += numbers.nbytes
    names = ("ranks", "rank", "num_nodes", "buckets", "rows", "sizes", "digest")
    header = json.dumps({name: getattr(partition, name) for name in names} | {"blocks": blocks}).encode()
    path = folder / name_of(partition.rank, partition.ranks)
    unfinished = path.with_suffix(".unfinished")
    with open(unfinished, "wb") as file:
        file.write(PREFIX.pack(MAGIC, VERSION, len(header), zlib.crc32(header)) + header)
        for numbers in partition.blocks.values():
            file.write(_bytes_of(numbers))
    os.replace(unfinished, path)
    return path


# ---------------------------------------------------------------- reading


class _Reader:
    """The open file of a rank, whose header is checked."""

    def __init__(self, folder: Path, rank: int, ranks: int) -> None:
        self.path = folder / name_of(rank, ranks)
        try:
            self.file = open(self.path, "rb")
        except OSError as error:
            raise PartitionFileError(
                f"{self.path}: expected the file of rank {rank} of {ranks}, got: {error}"
            ) from error
        start = self.file.read(PREFIX.size)
        if start[: len(MAGIC)] != MAGIC:
            raise self.error("not the file of a partition", f"{MAGIC!r} at its begin", f"{start[: len(MAGIC)]!r}")
        if len(start) < PREFIX.size:
            raise self.error("the file is truncated", f"{PREFIX.size} bytes of the prefix", len(start))
        _, version, size, crc = PREFIX.unpack(start)
        if version != VERSION:
            raise self.error("another version of the format", VERSION, version)
        self.header = json.loads(self.read(PREFIX.size, size, crc, "the header"))
        if (self.header["rank"], self.header["ranks"]) != (rank, ranks):
            got = "rank {rank} of {ranks}".format(**self.header)
            raise self.error("the file of another rank", f"rank {rank} of {ranks}", got)
        self.start = PREFIX.size + size

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def error(self, what: str, expected: object, got: object) -> PartitionFileError:
        self.file.close()
        return PartitionFileError(f"{self.path}: {what}: expected {expected}, got {got}")

    def read(self, offset: int, size: int, crc: int, what: str) -> bytearray:
        data = bytearray(size)
        self.file.seek(offset)
        got = self.file.readinto(data)
        if got != size:
            raise self.error("the file is truncated", f"{size} bytes of {what}", got)
        if zlib.crc32(data) != crc:
            raise self.error(f"{what} is damaged", f"CRC-32 {crc:08x}", f"{zlib.crc32(data):08x}")
        return data

    def blocks(self, wanted: list[Block]) -> Iterator[tuple[Block, torch.Tensor, int]]:
        """Blocks, and their digests."""
        for i, j, offset, size, crc, digest in self.header["blocks"]:
            if (i, j) in wanted:
                data = self.read(self.start + offset, size, crc, f"block {(i, j)}")
                yield (i, j), torch.from_numpy(np.frombuffer(data, "<i4")), digest


def _ranks_of(folder: Path) -> int:
    """How many ranks have written the partition in a folder."""
    found = {int(match[1]) for path in folder.glob("*.gpuopt") if (match := NAME.fullmatch(path.name))}
    if len(found) != 1:
        got = f"files of {sorted(found)} ranks" if found else "no such file"
        raise PartitionFileError(
            f"{folder}: expected the files of one partition, {name_of(0, 1)} or of more ranks, got {got}"
        )
    return found.pop()


def load(folder: Path, rank: int, ranks: int, device: torch.device | str) -> dict[str, Any]:
    """The attributes of the partition of a rank."""
    written = _ranks_of(folder)
    with _Reader(folder, rank if ranks == written else 0, written) as reader:
        header = reader.header
    deal, old = Deal(header["buckets"], ranks), Deal(header["buckets"], written)
    if not all(deal.pairs):
        pairs = sum(map(len, old.pairs))
        raise ValueError(
            f"{folder}: expected a group of at most {pairs} ranks, one for each pair of buckets, got {ranks}"
        )
    by_file: dict[int, list[Block]] = {}
    for block in deal.blocks(rank):
        by_file.setdefault(old.owners[block], []).append(block)
    blocks: dict[Block, torch.Tensor] = {}
    digests: dict[Block, int] = {}
    for number, wanted in sorted(by_file.items()):
        with _Reader(folder, number, written) as reader:
            if reader.header["digest"] != header["digest"]:
                raise reader.error("another graph", f"{header['digest']:016x}", f"{reader.header['digest']:016x}")
            for block, numbers, digest in reader.blocks(wanted):
                blocks[block], digests[block] = numbers.to(device), digest
    names = ("num_nodes", "buckets", "rows", "sizes", "digest")
    return {name: header[name] for name in names} | {"ranks": ranks, "rank": rank, "blocks": blocks, "digests": digests}
