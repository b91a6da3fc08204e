# SPDX-License-Identifier: Apache-2.0
"""What an operator can do to one deployment from the command line, as lines that can be pasted."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["commands"]

_REASON = "--reason '...'"


def commands(known: Mapping[str, Any], key: str | None) -> list[dict[str, str]]:
    """`{name, says, cli}` of those that make sense now; none without a flag."""
    under = next((one for one in known["flags"] if one["flag"] == key), None)
    return list(_lines(shlex.quote(known["deployment"]), shlex.quote(key), under)) if key and under else []


def _lines(name: str, key: str, under: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    yield _line("explain", "The precedence, line by line", f"kvflags explain {key} --deployment {name}")
    change = f"{name} --flag {key}"
    if under["opted"]:
        says = f"Take the opt-{under['opted']} back: what is dealt counts again"
        yield _line(
            f"opt-{under['opted']}", says, f"kvflags deployments opt-{under['opted']} {change} --clear {_REASON}"
        )
    if under["opted"] != "out":
        says = "Never treat it; a generation that is on is condemned"
        yield _line("opt-out", says, f"kvflags deployments opt-out {change} {_REASON}")
    if any(refusal["code"].startswith("isolation") for refusal in under["refusals"]):
        says = "State how its generations are kept from being paired"
        yield _line("declare", says, f"kvflags deployments declare {name} --isolation recreate {_REASON}")
    for pin in under["pins"]:
        generation = shlex.quote(pin["generation"])
        says = (
            f"Let {pin['generation']} be decided anew while its engines live; layouts may differ until all are replaced"
        )
        yield _line("reopen", says, f"kvflags deployments reopen {change} --generation {generation} {_REASON}")
    if any(pin["state"] == "condemned" for pin in under["pins"]):
        yield _line("restarts", "How to replace what was condemned", f"kvflags plan restarts {key}")


def _line(name: str, says: str, cli: str) -> dict[str, str]:
    return {"name": name, "says": says, "cli": cli}
