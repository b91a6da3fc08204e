# SPDX-License-Identifier: Apache-2.0
"""What each place of the HTTP interface needs, in one table. The first rule that fits decides."""

from __future__ import annotations

from typing import NamedTuple

from kvflags_collector.access.scopes import Scope

__all__ = ["RULES", "Rule", "rule_for"]

_READS = frozenset({"GET", "HEAD"})


class Rule(NamedTuple):
    """`place`: a path, or, with a slash at its end, all that begins so ("/" is just itself).

    methods: None for all. needed: None where anybody may ask. page: whether a browser's session opens it, too; the API
    never takes a cookie, which other sites can have sent.
    """

    place: str
    methods: frozenset[str] | None
    needed: Scope | None
    page: bool = False

    def fits(self, method: str, path: str) -> bool:
        inside = self.place != "/" and self.place.endswith("/")
        here = path.startswith(self.place) if inside else path == self.place
        return here and (self.methods is None or method in self.methods)


RULES = (
    # Supervisors ask without a token, and a browser fetches the stylesheet of the page that says one is missing.
    Rule("/livez", _READS, None),
    Rule("/readyz", _READS, None),
    Rule("/static/", _READS, None),
    Rule("/v1/", None, Scope.INGEST),
    Rule("/api/v1/engines/", frozenset({"POST"}), Scope.INGEST),
    # A fleet that the hub never met has no token of it: the signature says who sends, and a person whether it counts.
    Rule("/api/v1/hub/bundles", frozenset({"POST"}), None),
    Rule("/api/v1/hub/revocations", frozenset({"POST"}), None),
    Rule("/api/v1/hub/organisations/", None, Scope.ADMIN),
    Rule("/api/v1/tokens", None, Scope.ADMIN),
    Rule("/api/v1/tokens/", None, Scope.ADMIN),
    # Below the API the method says it: a new route that changes something needs `operate` from its first day.
    Rule("/api/v1/", _READS, Scope.READ),
    # Asking costs a read, although the protocol asks by POST.
    Rule("/ofrep/", None, Scope.READ),
    Rule("/api/v1/", None, Scope.OPERATE),
    Rule("/metrics", _READS, Scope.READ),
    Rule("/openapi.json", _READS, Scope.READ),
    Rule("/login", None, None, page=True),
    Rule("/logout", None, None, page=True),
    Rule("/", _READS, Scope.READ, page=True),
    Rule("/index.json", _READS, Scope.READ, page=True),
    Rule("/events", _READS, Scope.READ, page=True),
    Rule("/deployments/", _READS, Scope.READ, page=True),
    Rule("/hub", _READS, Scope.READ, page=True),
    Rule("/hub.json", _READS, Scope.READ, page=True),
    Rule("/hub/", _READS, Scope.READ, page=True),
    Rule("/rollouts/", _READS, Scope.READ, page=True),
    Rule("/rollouts/", None, Scope.OPERATE, page=True),
)


def rule_for(method: str, path: str) -> Rule | None:
    """The rule, or None: such a request is let in with `admin` only, whatever it meets."""
    return next((rule for rule in RULES if rule.fits(method, path)), None)
