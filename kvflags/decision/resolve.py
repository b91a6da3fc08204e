# SPDX-License-Identifier: Apache-2.0
"""A start: ask the collector within the bound, else fall back, and say in one line what holds and why.

Called once per engine, in the front end, when `create_engine_config` has made a configuration with a KV connector. The
order: the operator's own settings, the registered pin, the handed-out decision, the one last heard for this generation,
off. A rule of class UNSAFE turns any `on` off.
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING

from kvflags.decision import carry, deaths, last_heard, registration
from kvflags.decision.announce import announce
from kvflags.decision.ask import ask
from kvflags.decision.carry import Carried, Source
from kvflags.decision.choice import chosen, overruled
from kvflags.decision.seat import Seat, role_of, seat_of
from kvflags.decision.state import State
from kvflags.flags import Decision, Facts
from kvflags.sent import Kind, LastSent, Result
from kvflags.settings import Settings, Telemetry

if TYPE_CHECKING:
    from vllm.config import VllmConfig

__all__ = ["resolve"]

StaticFacts = Callable[["VllmConfig", Settings], Facts]


def resolve(
    settings: Settings,
    vllm_config: VllmConfig,
    *,
    static_facts: StaticFacts | None = None,
    environ: MutableMapping[str, str] = os.environ,
    argv: Sequence[str] = sys.argv,
) -> Carried:
    """What this engine runs under, to be put into the configuration. Takes at most `settings.wait_s` and a little.

    Raises only what `static_facts` raises; the caller guards.
    """
    seat = seat_of(vllm_config, argv)
    role, problem = role_of(settings.role, vllm_config.kv_transfer_config.kv_role)
    if seat is Seat.CHILD:
        return _inherited(settings, role, environ)
    facts = (static_facts or _static_facts())(vllm_config, settings)
    problems = [*settings.problems, *filter(None, (problem, *_conflicts(settings)))]
    carried = _start(settings, role, facts, problems, registers=seat in {Seat.FRONT_END, Seat.PARENT})
    announce(carried, problems)
    if settings.telemetry == Telemetry.LOCAL:
        _keep(settings, carried)
    if seat is Seat.PARENT:
        carry.export(environ, carried, os.getpid())
    return carried


def _keep(settings: Settings, carried: Carried) -> None:
    """What would have been registered, and what was decided without, stay on this machine too."""
    kept = LastSent(settings.state_dir, Kind.REGISTRATION, str(carried.url))
    kept.note(json.dumps(carried.to_json()).encode(), Result.KEPT)
    kept.write(at_once=True)


def _static_facts() -> StaticFacts:
    # Imported when called: kvflags.connector imports this package.
    from kvflags.connector.facts import static_facts  # noqa: PLC0415

    return static_facts


def _inherited(settings: Settings, role: str, environ: Mapping[str, str]) -> Carried:
    """An API server's: it has no engine of its own, so without its parent's word it is nobody's and sends nothing."""
    told = carry.inherit(environ, os.getppid(), settings.deployment, settings.generation, role)
    return told or Carried(source=Source.FALLBACK, reason="not_inherited", registration_id=str(uuid.uuid4()))


def _conflicts(settings: Settings) -> list[str]:
    found = []
    if not settings.nixl_telemetry:
        found.append("nixl_telemetry_disabled: NIXL_TELEMETRY_ENABLE says no, so nothing is measured; hint: unset it")
    if settings.kv_cache_layout and settings.force:
        found.append("KVFLAGS_FORCE: VLLM_KV_CACHE_LAYOUT overrules it; hint: set one of the two")
    if settings.telemetry == Telemetry.LOCAL and not settings.state_dir:
        found.append("KVFLAGS_TELEMETRY: there is no folder to keep it in; hint: set KVFLAGS_STATE_DIR")
    if settings.collector_url and settings.deployment and not settings.state_dir:
        found.append("state_dir: there is no HOME, so the decision is not kept; hint: set KVFLAGS_STATE_DIR")
    return found


def _start(settings: Settings, role: str, facts: Facts, problems: list[str], *, registers: bool) -> Carried:
    state, registration_id = State.of(settings), str(uuid.uuid4())
    handed, presented = _handed_out(settings, problems)
    remembered = last_heard.read(state, problems) if state else None
    died = _deaths(state, role, registration_id, problems) if state and registers else 0
    body = registration.body(
        settings,
        facts,
        registration_id=registration_id,
        role=role,
        deaths=died,
        presented=presented or (remembered and (remembered.signed or remembered.to_json())),
        problems=problems,
    )
    heard = ask(settings, body, problems) if registers and settings.asks else None
    # A forced or unsafe engine is told something of its own, which is not for its peers on this host.
    if heard and state and not body["local"] and not body["refused"]:
        last_heard.remember(state, heard.decision, problems)
    choice = chosen(settings, heard, handed, remembered, registers=registers)
    choice = overruled(choice, body["local"], registration.unsafe(facts) is not None)
    return Carried(
        source=choice.source,
        reason=choice.reason,
        decision=choice.decision,
        registration_id=registration_id,
        registered=heard is not None,
        registration=body | {"problems": registration.codes(problems)},
        url=settings.destination,
        heartbeat_s=heard.heartbeat_s if heard else 30.0,
        problems=tuple(registration.codes(problems)),
    )


def _handed_out(settings: Settings, problems: list[str]) -> tuple[Decision | None, str | None]:
    """The decision handed out with the deployment, verified, and what of it to present to the collector."""
    if not settings.decision:
        return None, None
    # Imported where it is needed: cryptography takes longer to import than a registration takes.
    from kvflags.decision.handed_out import handed_out  # noqa: PLC0415

    decision = handed_out(settings, time.time(), problems)
    return decision, settings.decision if decision else None


def _deaths(state: State, role: str, registration_id: str, problems: list[str]) -> int:
    died = deaths.count(state, role, problems)
    mark = deaths.Mark(state, role, registration_id)
    mark.leave(problems)
    deaths.clean_at_exit(mark)
    return died
