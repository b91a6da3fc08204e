# SPDX-License-Identifier: Apache-2.0
"""What a bundle of the right shape may still not say: one rule each, with a stable name that a refusal carries."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date, timedelta
from math import log
from typing import NamedTuple

from kvflags_collector.hub.schema import Bundle, Effect
from kvflags_collector.verdict.decide import VerdictState
from kvflags_collector.verdict.outcomes import PRIMARY

__all__ = ["RULES", "Rule", "implausible"]

# No layout makes anything twenty times faster or slower over a whole fleet; units that were mixed up do.
_FURTHEST = log(20)
_OLDEST = timedelta(days=366)


class Rule(NamedTuple):
    """`broken(bundle, today)`: whether it cannot be."""

    name: str
    says: str
    broken: Callable[[Bundle, date], bool]


def _effects(bundle: Bundle) -> Iterable[Effect]:
    return [*bundle.effects, *(effect for one in bundle.strata for effect in one.effects)]


def _day(bundle: Bundle) -> date | None:
    try:
        return date.fromisoformat(bundle.made_on)
    except ValueError:
        return None


def _repeats(names: list[str]) -> bool:
    return len(set(names)) < len(names)


def _more_than_all(bundle: Bundle) -> bool:
    """Strata are parts of the fleet, and what is compared is part of what is observed."""
    parts = [sum(getattr(one, arm) for one in bundle.strata) for arm in ("treated", "control")]
    arms = [4 if number is None else number for number in (bundle.treated, bundle.control)]
    return any(part > arm for part, arm in zip(parts, arms, strict=True))


def _better_and_slower(bundle: Bundle) -> bool:
    primary = [one.log_ratio for one in bundle.effects if one.outcome == PRIMARY]
    return bundle.verdict == VerdictState.READY and (not primary or primary[0] >= 0)


RULES = (
    Rule("no_date", "`made_on` is no day", lambda one, _: _day(one) is None),
    # A day of grace: clocks and zones differ.
    Rule(
        "from_the_future",
        "it is dated later than tomorrow",
        lambda one, today: (_day(one) or today) > today + timedelta(days=1),
    ),
    Rule("too_old", "it is older than a year", lambda one, today: (_day(one) or today) < today - _OLDEST),
    Rule(
        "beyond_reason",
        "an effect is larger than twentyfold",
        lambda one, _: any(abs(effect.log_ratio) > _FURTHEST for effect in _effects(one)),
    ),
    Rule(
        "said_twice",
        "an outcome or an architecture is there twice",
        lambda one, _: any(
            map(
                _repeats,
                [
                    [effect.outcome for effect in one.effects],
                    [part.architecture for part in one.architectures],
                    *([effect.outcome for effect in part.effects] for part in one.strata),
                ],
            )
        ),
    ),
    Rule("more_than_all", "its strata have more deployments than the fleet", lambda one, _: _more_than_all(one)),
    Rule(
        "better_and_slower",
        "it is ready, and time to first token is not better",
        lambda one, _: _better_and_slower(one),
    ),
)


def implausible(bundle: Bundle, today: date) -> Rule | None:
    """The first rule that it breaks."""
    return next((rule for rule in RULES if rule.broken(bundle, today)), None)
