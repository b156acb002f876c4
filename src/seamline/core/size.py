"""Sizes of memory as Spark and people write them."""

from __future__ import annotations

import re

_UNITS = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def in_bytes(text: str, bare: str = "m") -> int:
    """``"512m"`` and ``"8g"`` in bytes; a number without a unit is in ``bare`` ones."""
    found = re.fullmatch(r"(\d+)([kmgt]?)b?", str(text).strip().lower())
    if found is None:
        raise ValueError(f"a size is written like '512m' or '8g', but got {text!r}")
    return int(found[1]) * _UNITS[found[2] or bare]


def in_words(number: int) -> str:
    return f"{number / 2**30:.1f} GB"
