# SPDX-License-Identifier: Apache-2.0
"""The shape of a bundle, `kvflags.bundle/1`, closed: no field more, and no string that is not in a list or a pattern.

What makes a bundle and what receives it share this; the published JSON Schema is written from it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from kvflags.features import FEATURES
from kvflags_collector.hub.vocabulary import ARCHITECTURES, BACKENDS, GPUS, MODEL_CLASSES, OTHER, TRANSPORTS
from kvflags_collector.verdict.decide import VerdictState
from kvflags_collector.verdict.outcomes import Outcome

__all__ = ["BUNDLE", "LEAST", "REVOCATION", "Bundle", "Revocation", "Signed", "SignedRevocation"]

BUNDLE = "kvflags.bundle/1"
REVOCATION = "kvflags.revocation/1"
# The smallest group of deployments that anything is said about.
LEAST = 5


def _words(allowed: Any) -> Any:  # noqa: ANN401 - a set of strings, for a type that is made here
    """A string out of a list, as the JSON Schema has it too."""
    return Annotated[Literal[tuple(sorted(map(str, allowed)))], Field()]


_Number = Annotated[int, Field(ge=0, le=1_000_000)]
# Null is any number from 1 to 4.
_Cell = Annotated[int, Field(ge=0, le=1_000_000)] | None
_Members = Annotated[int, Field(ge=LEAST, le=1_000_000)]
_Hex = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
_Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Key = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{43}$")]
_Signature = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{86}$")]
_Transport = Annotated[
    str, Field(pattern=rf"^({'|'.join(sorted(TRANSPORTS))})(\+({'|'.join(sorted(TRANSPORTS))})){{0,3}}$")
]


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Effect(_Closed):
    """An outcome's change in the treated deployments, as a log ratio with its standard error, over deployments.

    Both are 0 where nothing changed anywhere: no transfer failed, or the number of blocks is what it was.
    """

    outcome: _words(Outcome)  # type: ignore[valid-type]
    log_ratio: Annotated[float, Field(ge=-10, le=10)]
    se: Annotated[float, Field(ge=0, le=10)]
    treated: _Members
    control: _Members


_Effects = Annotated[list[Effect], Field(max_length=len(Outcome))]


class StratumPart(_Closed):
    """One stratum with at least five deployments in either arm; what is not known is left out."""

    backend: _words(BACKENDS) | None = None  # type: ignore[valid-type]
    gpu: _words(GPUS) | None = None  # type: ignore[valid-type]
    model_class: _words(MODEL_CLASSES) | None = None  # type: ignore[valid-type]
    vllm: Annotated[str, Field(pattern=r"^[0-9]{1,2}\.[0-9]{1,3}$")] | None = None
    kv_heads_per_rank: Annotated[int, Field(ge=1, le=9999)] | None = None
    block_size: Annotated[int, Field(ge=1, le=99_999)] | None = None
    transport: _Transport | None = None
    treated: _Members
    control: _Members
    effects: _Effects


class ArchitecturePart(_Closed):
    """How many deployments serve models of an architecture, from five on."""

    architecture: _words(ARCHITECTURES | {OTHER})  # type: ignore[valid-type]
    deployments: _Members


class Verdicts(_Closed):
    """Treated deployments by what their own change says. Null: 1 to 4."""

    positive: _Cell
    negative: _Cell
    neutral: _Cell
    insufficient: _Cell


class Given(_Closed):
    """What people said, by sign and by tag. Null: 1 to 4. Never a word of what they wrote."""

    positive: _Cell
    negative: _Cell
    latency: _Cell
    errors: _Cell
    quality: _Cell
    memory: _Cell
    crash: _Cell


class Bundle(_Closed):
    """One fleet's aggregate about one feature. `fleet`: a pseudonym that only the organisation can make again."""

    schema_: Annotated[Literal["kvflags.bundle/1"], Field(alias="schema")]
    fleet: _Hex
    feature: _words(FEATURES)  # type: ignore[valid-type]
    made_on: Annotated[str, Field(pattern=r"^20[0-9][0-9]-[01][0-9]-[0-3][0-9]$")]
    kvflags: Annotated[str, Field(pattern=r"^[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}$")]
    verdict: _words(VerdictState)  # type: ignore[valid-type]
    deployments: _Cell
    treated: _Cell
    control: _Cell
    effective_share: Annotated[float, Field(ge=0, le=1)] | None
    effects: _Effects
    strata: Annotated[list[StratumPart], Field(max_length=32)]
    strata_left_out: _Number
    architectures: Annotated[list[ArchitecturePart], Field(max_length=len(ARCHITECTURES) + 1)]
    measured: Verdicts
    given: Given


class Revocation(_Closed):
    """Take one bundle back, or, with `bundle` null, all of them for good: the key is then refused."""

    schema_: Annotated[Literal["kvflags.revocation/1"], Field(alias="schema")]
    bundle: _Digest | None


class _Envelope(_Closed):
    key: _Key
    signature: _Signature


class Signed(_Envelope):
    """A bundle with the organisation's public key, and its Ed25519 signature of the bundle's canonical JSON."""

    bundle: Bundle


class SignedRevocation(_Envelope):
    """As a bundle is signed."""

    revocation: Revocation
