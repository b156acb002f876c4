"""The books of a run: which rows were trained, and the averages of an epoch in the making."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from seamline.core.ledger import Ledger
from seamline.core.mean import Mean, Numbers
from seamline.core.shards import Batch

Entry = tuple[float, float, float, float]
"""One worker's step in the books: its first row and how many there were, its total loss and what that counts."""


class Books(Protocol):
    """What all workers did in one step, one entry for each, perhaps still on a device."""

    def tolist(self) -> Sequence[Entry]: ...


class Account:
    """Entered step by step and the same on every worker; what lies on a device stays there until it is settled."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self._entries: list[tuple[int, Books | list[Entry]]] = []
        self._loss, self._pending = Mean(), Mean()
        self._numbers, self._pending_numbers = Numbers(), Numbers()

    def enter(
        self, epoch: int, batch: Batch, loss: Mean, books: Books | None, numbers: Iterable[Mapping[str, Mean]]
    ) -> None:
        """One step: of all workers by ``books`` and ``numbers``, or of this one where it is alone."""
        self._pending = self._pending.plus(loss)
        for reported in numbers:
            self._pending_numbers.add(reported)
        entry = (batch.start, batch.rows, loss.total, loss.count)
        self._entries.append((epoch, [entry] if books is None else books))

    def settle(self) -> None:
        for epoch, books in self._entries:
            for start, rows, total, count in books if isinstance(books, list) else books.tolist():
                self.ledger.add([(epoch, int(start), int(start + rows))])
                self._loss = self._loss.plus(Mean(float(total), float(count)))
        self._numbers.add(self._pending_numbers.on_host())
        self._entries, self._pending, self._pending_numbers = [], Mean(), Numbers()

    @property
    def running_loss(self) -> float:
        """The mean of the epoch so far, with what this worker did since the books were settled."""
        return self._loss.plus(self._pending).value

    def averages(self) -> dict[str, float]:
        return {"loss": self._loss.value, **self._numbers.averages()}

    def begin_epoch(self) -> None:
        self._loss, self._numbers = Mean(), Numbers()

    def to_dict(self) -> dict[str, Any]:
        return {
            "loss": [self._loss.total, self._loss.count],
            "numbers": {name: [mean.total, mean.count] for name, mean in self._numbers.items()},
            "ledger": self.ledger.to_dict(),
        }

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Account:
        account = cls()
        account.ledger = Ledger.from_dict(saved["ledger"])
        account._loss = Mean(*saved["loss"])
        account._numbers = Numbers({name: Mean(*pair) for name, pair in saved.get("numbers", {}).items()})
        return account
