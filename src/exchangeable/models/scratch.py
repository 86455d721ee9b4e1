"""Storage of activations between layers: in memory, or in a scratch file for each layer."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

import numpy as np
import torch
from torch import Tensor

from exchangeable.errors import Failed

Storage = Literal["memory", "scratch", "recompute"]


@dataclass
class ActivationStore:
    """Activations, or their gradients, of chunks of cells, by layer and chunk.

    All that is put here is held in memory, except with ``scratch``.
    """

    storage: Storage
    chunks: int
    """Number of chunks; the file of a layer is closed when its last chunk is dropped."""
    folder: Path | None = None
    """Folder of the scratch files; None: the one of temporary files."""
    reused: list[Tensor] | None = None
    """Memory for each chunk that every layer writes to in place of the one before: what threads
    allocate between other things would leave gaps as large as all of it."""
    held: dict[tuple[int, int], Tensor] = field(default_factory=dict)
    files: dict[int, IO[bytes]] = field(default_factory=dict)
    extents: dict[tuple[int, int], tuple[int, torch.Size, torch.dtype]] = field(
        default_factory=dict
    )
    """Offset in the layer's file, shape and type."""

    def put(self, level: int, chunk: int, values: Tensor) -> None:
        """Store the activations of a chunk at a layer, in place of earlier ones."""
        if self.storage != "scratch":
            self.held[level, chunk] = self._in_place(chunk, values)
            return
        if level not in self.files:
            # Closed when it is no longer needed; it has no name, so it never outlives the process.
            self.files[level] = tempfile.TemporaryFile(dir=self.folder)  # noqa: SIM115
        # As bytes: numpy has no bfloat16.
        content = values.detach().cpu().contiguous().view(torch.uint8).numpy()
        file = self.files[level]
        extent = self.extents.get((level, chunk))
        start = file.seek(0, 2) if extent is None else extent[0]
        if extent is None and content.size:
            self._reserve(file, start, content.size)
        self.extents[level, chunk] = start, values.shape, values.dtype
        if content.size:
            mapped = np.memmap(file, np.uint8, "r+", start, content.shape)
            mapped[:] = content

    def _in_place(self, chunk: int, values: Tensor) -> Tensor:
        """Write values over those of the layer before, where there is room for them."""
        if self.reused is None:
            return values
        room = self.reused[chunk]
        if room.dtype != values.dtype or len(room) < values.numel():
            return values
        return room[: values.numel()].view(values.shape).copy_(values)

    def _reserve(self, file: IO[bytes], start: int, size: int) -> None:
        """Reserve space before mapping it: a write to a full disk by memory ends the process."""
        try:
            os.posix_fallocate(file.fileno(), start, size)
        except OSError as error:
            folder = self.folder or tempfile.gettempdir()
            raise Failed(
                f"no room for the scratch file in {folder} ({error.strerror}): set TMPDIR to a "
                f"folder that has some"
            ) from None

    def has(self, level: int, chunk: int) -> bool:
        return (level, chunk) in self.held or (level, chunk) in self.extents

    def get(self, level: int, chunk: int) -> Tensor:
        """Return what ``put`` stored; from a file, on the CPU."""
        if self.storage != "scratch":
            return self.held[level, chunk]
        start, shape, dtype = self.extents[level, chunk]
        size = shape.numel() * dtype.itemsize
        if not size:
            return torch.empty(shape, dtype=dtype)
        # A copy, so that the mapping is released at once and mappings never add up.
        content = np.array(np.memmap(self.files[level], np.uint8, "r", start, (size,)))
        return torch.from_numpy(content).view(dtype).view(shape)

    def drop(self, level: int, chunk: int) -> None:
        """Release activations that are not needed again."""
        self.held.pop((level, chunk), None)
        if self.extents.pop((level, chunk), None) is None:
            return
        if level in self.files and chunk == self.chunks - 1:
            self.files.pop(level).close()

    def __del__(self) -> None:
        for file in self.files.values():
            file.close()
