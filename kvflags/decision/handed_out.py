# SPDX-License-Identifier: Apache-2.0
"""The decision handed out with the deployment in KVFLAGS_DECISION: verified here, since the collector may be away."""

from __future__ import annotations

from kvflags.decision.signed import BadToken, verify
from kvflags.features import FEATURES
from kvflags.flags import Decision
from kvflags.settings import Settings

__all__ = ["handed_out"]


def handed_out(settings: Settings, now: float, problems: list[str]) -> Decision | None:
    """The decision, or None with the reason added to `problems`. `now` is Unix time in seconds."""
    if not settings.decision:
        return None
    if not settings.decision_key or not settings.deployment:
        missing = "KVFLAGS_DECISION_KEY" if not settings.decision_key else "KVFLAGS_DEPLOYMENT"
        problems.append(f"KVFLAGS_DECISION: it is ignored without {missing}; hint: set it too")
        return None
    try:
        claims = verify(
            settings.decision_key,
            settings.decision,
            now,
            deployment=settings.deployment,
            generation=settings.generation,
        )
    except BadToken as bad:
        problems.append(f"KVFLAGS_DECISION: {bad.message}; hint: {bad.hint}")
        return None
    if claims.feature not in FEATURES:
        problems.append(
            f"KVFLAGS_DECISION: this release knows no feature {claims.feature[:40]!r}; hint: upgrade kvflags"
        )
        return None
    return claims.decision(settings.decision)
