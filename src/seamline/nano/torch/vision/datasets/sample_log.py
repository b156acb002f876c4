"""What the processes that load a data set know together: the epoch, how often a sample was drawn, which are damaged."""

from __future__ import annotations

import torch

_NO_EPOCH = -1


class SampleLog:
    """Memory that is shared with loading workers, forked or spawned, also with those that stay for many epochs."""

    def __init__(self, samples: int) -> None:
        epoch = torch.full((1,), _NO_EPOCH, dtype=torch.int64)
        draws, damaged = torch.zeros(samples, dtype=torch.int32), torch.zeros(samples, dtype=torch.uint8)
        self.__setstate__((epoch, draws, damaged))

    def __getstate__(self) -> tuple[torch.Tensor, ...]:
        return self._memory

    def __setstate__(self, memory: tuple[torch.Tensor, ...]) -> None:
        # Torch hands the same memory to its workers; any other pickle is a copy, whose workers share it from here on.
        self._memory = tuple(_shared(tensor) for tensor in memory)
        # The same memory as arrays: looking into a tensor takes ten times as long, and it is done for every sample.
        self._epoch, self._draws, self._damaged = (tensor.numpy() for tensor in self._memory)

    def set_epoch(self, epoch: int) -> None:
        self._epoch[0] = epoch

    def draw(self, sample: int) -> int:
        """The epoch if it was set, else how often this sample was drawn before now."""
        epoch = int(self._epoch[0])
        if epoch != _NO_EPOCH:
            return epoch
        if sample >= len(self._draws):
            raise IndexError(f"sample {sample} was added to a data set of {len(self._draws)}; make a new one instead")
        before = int(self._draws[sample])
        self._draws[sample] = before + 1
        return before

    def note_damaged(self, sample: int) -> None:
        self._damaged[sample] = 1

    def is_damaged(self, sample: int) -> bool:
        return bool(self._damaged[sample])

    @property
    def damaged(self) -> list[int]:
        found: list[int] = self._damaged.nonzero()[0].tolist()
        return found


def _shared(tensor: torch.Tensor) -> torch.Tensor:
    moved: torch.Tensor = tensor.share_memory_()  # type: ignore[no-untyped-call]
    return moved
