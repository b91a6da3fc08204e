# SPDX-License-Identifier: Apache-2.0
"""Every route of the application with every scope, and with none: from its own table, so that no route is forgotten."""

import pytest
from fastapi import FastAPI

from kvflags_collector.access.rules import RULES, rule_for
from kvflags_collector.access.scopes import Scope, covers

_PAGES = {"/", "/index.json", "/events", "/openapi.json", "/metrics"}
_PAGES |= {f"/rollouts/{{key}}{what}" for what in ("", ".json", "/events")}
_PAGES |= {f"/rollouts/{{key}}/feedback/{{name}}{what}" for what in ("", ".json")}
_PAGES |= {"/hub", "/hub.json", "/hub/events"}
_PAGES |= {f"/deployments/{{id:path}}{what}" for what in ("", ".json", ".events")}


def _routes(app: FastAPI) -> list[tuple[str, str]]:
    return [(method, route.path) for route in app.routes for method in sorted(route.methods)]


def _filled(path: str) -> str:
    return path.replace("{", "").replace("}", "")


def _expected(method: str, path: str) -> Scope | None:
    """By what the route does, said here once more and otherwise than the rules say it."""
    if path in {"/livez", "/readyz", "/login", "/logout"} or path.startswith("/static/"):
        return None
    if path.startswith("/v1/") or path.endswith(("/register", "/heartbeat")):
        return Scope.INGEST
    if path in {"/api/v1/hub/bundles", "/api/v1/hub/revocations"}:
        return None
    if path.startswith(("/api/v1/tokens", "/api/v1/hub/organisations/")):
        return Scope.ADMIN
    if path.startswith("/ofrep/"):
        return Scope.READ
    if method in {"GET", "HEAD"} and (path in _PAGES or path.startswith("/api/v1/")):
        return Scope.READ
    assert path.startswith(("/api/v1/", "/rollouts/")), (
        f"{method} {path} is new: give it a rule in access/rules.py, and say here which"
    )
    return Scope.OPERATE


def test_every_route_has_a_rule_and_every_rule_a_route(guarded):
    used = {rule_for(method, _filled(path)) for method, path in _routes(guarded.app)}
    assert used == set(RULES)


def test_every_route_with_every_scope(guarded):
    """Bodies are empty: whoever is let in gets an answer of the route itself, which is never one of access."""
    guarded.app.state.live.close()  # a stream that is let in would not end
    for method, path in _routes(guarded.app):
        needed = _expected(method, path)
        for scope in Scope:
            status = guarded.ask(method, _filled(path), guarded.secrets[scope]).status_code
            allowed = needed is None or covers(scope, needed)
            assert (status == 403) is not allowed, (method, path, scope, status)
            assert status != 401
        assert (guarded.ask(method, _filled(path)).status_code == 401) is (needed is not None), (method, path)


@pytest.mark.parametrize(
    ("held", "may"),
    [
        (Scope.INGEST, {Scope.INGEST}),
        (Scope.READ, {Scope.READ}),
        (Scope.OPERATE, {Scope.READ, Scope.OPERATE}),
        (Scope.ADMIN, set(Scope)),
    ],
)
def test_what_a_scope_covers(held, may):
    assert {scope for scope in Scope if covers(held, scope)} == may


def test_what_has_no_rule_needs_admin(guarded):
    @guarded.app.post("/elsewhere")
    def elsewhere() -> str:
        return "reached"

    statuses = [guarded.ask("POST", "/elsewhere", guarded.secrets[scope]).status_code for scope in Scope]
    assert statuses == [403, 403, 403, 200]
