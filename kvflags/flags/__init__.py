# SPDX-License-Identifier: Apache-2.0
"""The domain, pure: flags, facts, gates, assignment and the precedence. Imports nothing of ours and does no I/O.

The engine and the collector share it, so that both mean the same by the same word.
"""

from kvflags.flags.assignment import Candidate, assign
from kvflags.flags.bucketing import bucket, fractional
from kvflags.flags.evaluate import Line, Ruling, Standing, evaluate
from kvflags.flags.gates import Refusal, Rule, RuleClass, minor, refusals
from kvflags.flags.graduation import MEASURES, Graded, criterion_problem, expired, graded
from kvflags.flags.model import (
    BUCKETS,
    HASH_VERSION,
    Arm,
    Assignment,
    Comparison,
    Decision,
    Facts,
    Flag,
    Isolation,
    Phase,
    PinState,
    Ramp,
    Role,
    Step,
    Target,
    Variant,
)
from kvflags.flags.ramps import default_steps
from kvflags.flags.versions import in_range, range_problem

__all__ = [
    "BUCKETS",
    "HASH_VERSION",
    "MEASURES",
    "Arm",
    "Assignment",
    "Candidate",
    "Comparison",
    "Decision",
    "Facts",
    "Flag",
    "Graded",
    "Isolation",
    "Line",
    "Phase",
    "PinState",
    "Ramp",
    "Refusal",
    "Role",
    "Rule",
    "RuleClass",
    "Ruling",
    "Standing",
    "Step",
    "Target",
    "Variant",
    "assign",
    "bucket",
    "criterion_problem",
    "default_steps",
    "evaluate",
    "expired",
    "fractional",
    "graded",
    "in_range",
    "minor",
    "range_problem",
    "refusals",
]
