# SPDX-License-Identifier: Apache-2.0
"""Gates: where a feature may run at all. A rule is data; a fact that is not known is a gate that is not met."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from kvflags.flags.model import Facts

__all__ = ["Refusal", "Rule", "RuleClass", "minor", "refusals"]


class RuleClass(StrEnum):
    """What happens where a rule is ignored, which decides whether it can overrule a pin.

    UNSAFE: the engine crashes or KV is corrupted. Such a rule turns a pinned engine off and condemns the generation,
    since transfers that fail visibly are better than corrupt ones. INEFFECTIVE: no gain, or slower. UNSUPPORTED: not
    known to work, or not yet stated by the operator. The last two keep a pin.
    """

    UNSAFE = "unsafe"
    INEFFECTIVE = "ineffective"
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True, slots=True)
class Rule:
    """One reason not to run the feature.

    `needs` names the facts that `refuses` reads: while one of them is None the rule refuses too, with the code suffixed
    `:unknown`. `reference` is the public report or the release that motivates the rule. The rule holds from release
    `since` to release `until`, both included (None: open); a release that cannot be read is no release of a range.
    """

    code: str
    rule_class: RuleClass
    needs: tuple[str, ...]
    refuses: Callable[[Facts], bool]
    says: str
    reference: str = ""
    since: tuple[int, int] | None = None
    until: tuple[int, int] | None = None

    def holds_in(self, release: str | None) -> bool:
        """Whether this vLLM release is one that the rule is about."""
        if self.since is None and self.until is None:
            return True
        found = minor(release)
        return found is not None and (self.since or found) <= found <= (self.until or found)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A rule that was met, in words an operator can act on."""

    code: str
    rule_class: RuleClass
    says: str
    reference: str = ""


def refusals(rules: Iterable[Rule], facts: Facts) -> tuple[Refusal, ...]:
    """Every rule that refuses these facts, in the order of the table; empty means eligible."""
    return tuple(refusal for rule in rules if (refusal := _refusal(rule, facts)))


def minor(release: str | None) -> tuple[int, int] | None:
    """("0.32.1.post2") -> (0, 32); None where that cannot be read."""
    major, _, rest = (release or "").partition(".")
    second = rest.partition(".")[0]
    return (int(major), int(second)) if major.isdigit() and second.isdigit() else None


def _refusal(rule: Rule, facts: Facts) -> Refusal | None:
    if not rule.holds_in(facts.vllm):
        return None
    unknown = [name for name in rule.needs if getattr(facts, name) is None]
    if unknown:
        says = f"{' and '.join(unknown)} not known yet, and {rule.says[0].lower()}{rule.says[1:]}"
        return Refusal(f"{rule.code}:unknown", RuleClass.UNSUPPORTED, says, rule.reference)
    return Refusal(rule.code, rule.rule_class, rule.says, rule.reference) if rule.refuses(facts) else None
