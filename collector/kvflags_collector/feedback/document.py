# SPDX-License-Identifier: Apache-2.0
"""The report as a document: every field with its type. `docs/reference/report.schema.json` is made from it.

Fields are added under the same number; anything else makes it kvflags.report/2. Changes are ratios less 1 (-0.2 is
20 % less), shares are of 1, times RFC 3339 in UTC. Null is "not known", never a zero.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired

# Pydantic makes the schema from it, and below Python 3.12 it takes no other.
from typing_extensions import TypedDict

__all__ = [
    "SCHEMA",
    "Alarm",
    "Arm",
    "Canaries",
    "Coverage",
    "Criterion",
    "DataHealth",
    "Deployment",
    "Effect",
    "Evidence",
    "Feedback",
    "Figures",
    "FlagShown",
    "Item",
    "Kind",
    "Needed",
    "Predicate",
    "Rate",
    "Refused",
    "Report",
    "RestartCost",
    "Said",
    "Signs",
    "Stratum",
    "Times",
]

SCHEMA: Literal["kvflags.report/1"] = "kvflags.report/1"


class Target(TypedDict):
    """share: in thousandths of a percent. One of the two is null."""

    share: int | None
    count: int | None


class FlagShown(TypedDict):
    key: str
    feature: str
    phase: str
    revision: int
    target: Target | None
    expires: str | None
    expired: bool


class Said(TypedDict):
    """The verdict. reason: a stable code. scope: strata it is ready for. returned: deployments put back to control."""

    state: str
    reason: str
    why: list[str]
    next: str
    scope: list[str]
    returned: list[str]
    warnings: list[str]
    invalid_strata: dict[str, str]


class Pair(TypedDict):
    treatment: int
    control: int


class Evidence(TypedDict):
    """deployments: in the comparison. events: those of them that were replaced and measured before and after.

    unmatched: treated events without a control event to stand on. left_out: events that do not count, by reason
    (`changed`, `no_baseline`, `too_little_seen`). days: with the minimum share treated. since: the first treated event.
    """

    deployments: Pair
    excluded: int
    events: Pair
    unmatched: int
    left_out: dict[str, int]
    transfers: int | None
    days: float
    since: str | None
    releases: dict[str, list[str]]


class Effect(TypedDict):
    """levels: geometric means over the events of each arm, after the event, in `unit`. They explain; what decides is
    the change, which is against each deployment's own before."""

    outcome: str
    role: str
    change: float | None
    low: float | None
    high: float | None
    confidence: float
    limit: str
    standing: str
    treated: int | None
    control: int | None
    levels: dict[str, float | None]
    unit: str


class Signs(TypedDict):
    """How many deployments were measured to be better or worse by themselves, beside what people said of them."""

    measured: dict[str, int]
    given: dict[str, int]


class Stratum(TypedDict):
    """verdict: positive, negative, neutral or insufficient. more: treated deployments after which it would be known;
    null where it is, or where no number in reach would tell."""

    name: str
    treated: int
    control: int
    ready: bool
    verdict: str
    more: int | None
    outcomes: list[Effect]
    signs: Signs


class Times(TypedDict):
    mean: float | None
    p50: float | None
    p99: float | None


class Figures(TypedDict):
    transfers: int | None
    failed: int | None
    errors: dict[str, int]
    bytes: int | None
    descriptors_per_transfer: float | None
    blocks_per_transfer: float | None
    post_ms: Times
    transfer_ms: Times


class Arm(Figures):
    """arm: null for what is in neither."""

    arm: str | None
    deployments: int


class Rate(TypedDict):
    failed: int
    share: float | None


class Kind(TypedDict):
    """A kind of failure, by arm."""

    kind: str
    arms: dict[str, Rate]


class Refusal(TypedDict):
    code: str
    says: str


class Refused(Refusal):
    deployments: int


class Coverage(TypedDict):
    """Where a default would take effect: eligible deployments, and what keeps the others out, the most first."""

    deployments: int
    eligible: int
    share: float | None
    refusals: list[Refused]


class RestartCost(TypedDict):
    """What replacing cost, in both arms. minutes: the median from the first registration of a generation until both
    roles were heard. transfers, failed: within the hours of the replacement."""

    events: int
    minutes: float | None
    transfers: int
    failed: int
    share: float | None


class Needed(TypedDict):
    """What is still missing for `ready`. more: treated deployments. about: the day on which it would be there at the
    present pace."""

    reason: str
    says: str
    more: int | None
    about: str | None


class Criterion(TypedDict):
    """A criterion that was declared beforehand. met: null where nothing tells yet. detail: the numbers it rests on."""

    says: str
    met: bool | None
    detail: str


class Predicate(TypedDict):
    """What a default would need: to ask for `layout` where all of one entry of `where` is so, and nothing of
    `unless`."""

    layout: str
    where: list[dict[str, Any]]
    unless: list[Refusal]
    says: str


class Deployment(Figures):
    """A generation of a deployment. layout: as requested, as vLLM resolved it, and whether it took hold."""

    deployment: str | None
    generation: str
    epoch: int | None
    latest: bool
    state: str | None
    arm: str | None
    comparison: str
    excluded_because: str | None
    variant: str | None
    layout: dict[str, Any]
    exercised: dict[str, int] | None
    refusals: list[Refusal]
    problems: list[str]
    dropped: int
    verdict: str | None


class Alarm(TypedDict):
    kind: str
    deployment: str
    generation: str
    epoch: int
    says: str
    first_at: str | None
    ended_at: str | None


class Item(TypedDict):
    """One signal. source: measured or given; what only people's feedback has is absent from the other."""

    id: str
    flag: str
    deployment: str
    source: str
    sign: str
    tags: list[str]
    comment: str
    author: str
    recorded_at: str
    withdrawn: bool
    generation: str | None
    epoch: NotRequired[int | None]
    variant: NotRequired[str | None]
    arm: NotRequired[str | None]
    stratum: NotRequired[str | None]
    engines: NotRequired[list[dict[str, Any]]]
    releases: NotRequired[dict[str, list[str]]]
    revision: NotRequired[int]
    changed_by: NotRequired[str | None]
    changed_at: NotRequired[str | None]


class Feedback(TypedDict):
    positive: int
    negative: int
    withdrawn: int
    items: list[Item]


class Canaries(TypedDict):
    """Deployments that a canary compared, those with a mismatch, and the largest difference of a logprob, in nats."""

    deployments: int
    mismatched: int
    max_delta: float | None


class DataHealth(TypedDict):
    """canaries: by variant; empty without any."""

    effective_share: float | None
    mixed_generations: int
    dropped_spans: int
    expired: int
    incomplete: int
    late: int
    canaries: dict[str, Canaries]


class Report(TypedDict):
    """The report on a flag: the verdict first, then everything it rests on.

    unknown: what a report of the past leaves out, since no history of it is kept; empty in a report of now.
    """

    schema: Literal["kvflags.report/1"]
    flag: FlagShown
    generated_at: str
    fresh_as_of: str
    as_of: str | None
    unknown: list[str]
    verdict: Said
    evidence: Evidence
    outcomes: list[Effect]
    strata: list[Stratum]
    signs: Signs
    arms: list[Arm]
    errors: list[Kind]
    coverage: Coverage | None
    restart_cost: RestartCost | None
    needed: list[Needed]
    criteria: list[Criterion]
    predicate: Predicate | None
    way_back: list[str]
    reproduce: str
    deployments: list[Deployment]
    alarms: list[Alarm]
    feedback: Feedback
    data_health: DataHealth
