# SPDX-License-Identifier: Apache-2.0
"""What became of a body that was handed over, to the wire or to the shelf."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

__all__ = ["Answer", "Outcome", "Way"]


class Outcome(Enum):
    """What becomes of a batch."""

    STORED = "stored"
    LATER = "later"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Answer:
    """`rejected`: spans or points that the collector refused within a batch that it stored. `says`: for the log."""

    outcome: Outcome
    rejected: int = 0
    says: str = ""


class Way(Protocol):
    """Where bodies go. One thread only; `send` and `rest` raise nothing but programming errors."""

    timeout_s: float

    def send(self, body: bytes) -> Answer:
        """Hand it over, once."""

    def rest(self) -> None:
        """Nothing more is to be sent for now."""

    def close(self) -> None:
        """The end."""
