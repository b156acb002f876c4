"""Values that this program holds for its executors, where Spark offers no broadcast: Spark Connect."""

from __future__ import annotations

import itertools
from typing import Any, Generic

from seamline.core.engine import Value
from seamline.core.packet import Packet
from seamline.engines.spark.hub import Hub
from seamline.engines.spark.wire import Role, Wire, read

_opened: dict[tuple[bytes, int], Any] = {}
"""What this process has read, by the token of its holder and its number there."""


class Holder:
    """Listens from the first value on until it is closed."""

    def __init__(self, host: str, advertised: str) -> None:
        self._values: dict[int, Packet] = {}
        self._numbers = itertools.count()
        self._hub = Hub(host, self._welcome, advertised=advertised)

    def put(self, value: Value) -> HeldBroadcast[Value]:
        number = next(self._numbers)
        self._values[number] = Packet.of(value, "the value")
        _opened[self._hub.token, number] = value
        return HeldBroadcast(self._hub.address, self._hub.token, number, self)

    def take_back(self, number: int) -> None:
        self._values.pop(number, None)
        _opened.pop((self._hub.token, number), None)

    def close(self) -> None:
        for number in list(self._values):
            self.take_back(number)
        self._hub.close()

    def _welcome(self, role: Role, number: int, _wire: Wire) -> list[Packet] | None:
        value = self._values.get(number) if role is Role.READER else None
        return None if value is None else [value, Packet.of(set(self._values), "the numbers")]


class HeldBroadcast(Generic[Value]):
    """A value that a holder has; the handle knows where that is."""

    def __init__(self, address: tuple[str, int], token: bytes, number: int, holder: Holder | None = None) -> None:
        self._address = address
        self._token = token
        self._number = number
        self._holder = holder

    @property
    def value(self) -> Value:
        key = self._token, self._number
        if key not in _opened:
            _opened[key] = self._fetch()
        value: Value = _opened[key]
        return value

    def release(self) -> None:
        if self._holder is not None:
            self._holder.take_back(self._number)
            self._holder = None

    def __reduce__(self) -> tuple[Any, ...]:
        return HeldBroadcast, (self._address, self._token, self._number)

    def _fetch(self) -> Any:
        try:
            body, numbers = read(self._address, self._token, self._number)
        except (EOFError, OSError) as error:
            raise ValueError("what should be read here was released, or its program has ended") from error
        held = numbers.open()
        for key in [key for key in _opened if key[0] == self._token and key[1] not in held]:
            del _opened[key]  # released meanwhile
        return body.open()
