# SPDX-License-Identifier: Apache-2.0
"""Bundles of organisations that never were, signed with keys of their own."""

from __future__ import annotations

import hashlib
from typing import Any

from kvflags.signatures import canonical, encoded, public_key, signature

__all__ = ["bundle", "key_of", "revocation", "signed"]

Json = dict[str, Any]

_UNCHANGED = ("failed_transfers", "kv_blocks")


def key_of(name: str) -> bytes:
    """The private key of an organisation, by its name."""
    return hashlib.sha256(name.encode()).digest()


def bundle(
    name: str, effect: float = -0.25, *, se: float = 0.03, gpu: str = "H100", guards: float = 0.0, **more: Any
) -> Json:
    """Of a fleet, by its name: time to first token at `effect`, each guard at `guards` (log ratios)."""
    # Figures of two fleets never agree to the last digit.
    own = int(hashlib.sha256(name.encode()).hexdigest()[:4], 16) / 65_536 / 1000
    primary = {"outcome": "time_to_first_token", "log_ratio": round(effect + own, 6), "se": se}
    others = [
        {"outcome": outcome, "log_ratio": round(guards + own, 6), "se": 0.002}
        for outcome in ("inter_token_latency", "output_tokens_per_second")
    ]
    nothing = [{"outcome": outcome, "log_ratio": 0.0, "se": 0.0} for outcome in _UNCHANGED]
    arms = {"treated": 12, "control": 14}
    return {
        "schema": "kvflags.bundle/1",
        "fleet": hashlib.sha256(name.encode()).hexdigest()[:16],
        "feature": "cross_layer_blocks",
        "made_on": "2027-01-15",
        "kvflags": "0.1.0",
        "verdict": "on_track",
        "deployments": 30,
        **arms,
        "effective_share": 1.0,
        "effects": [one | arms for one in (*nothing, *others, primary)],
        "strata": [
            {"backend": "FLASH_ATTN", "gpu": gpu, "vllm": "0.32", "block_size": 16}
            | arms
            | {"effects": [primary | arms, others[0] | arms]}
        ],
        "strata_left_out": 0,
        "architectures": [{"architecture": "LlamaForCausalLM", "deployments": 30}],
        "measured": {"positive": 7, "negative": 0, "neutral": None, "insufficient": None},
        "given": {"positive": 0, "negative": None}
        | dict.fromkeys(("latency", "errors", "quality", "memory", "crash"), 0),
    } | more


def signed(key: bytes, document: Json) -> Json:
    return {"bundle": document, "key": public_key(key), "signature": encoded(signature(key, canonical(document)))}


def revocation(key: bytes, digest: str | None) -> Json:
    document = {"schema": "kvflags.revocation/1", "bundle": digest}
    envelope = signed(key, document)
    return {"revocation": envelope.pop("bundle"), **envelope}
