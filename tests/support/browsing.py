# SPDX-License-Identifier: Apache-2.0
"""What an operator's browser does on the pages, without the browser: signs in, reads forms, and sends them."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

from guarded import Guarded

from kvflags_collector.access.scopes import Scope
from kvflags_collector.rollout import flags

__all__ = ["HTML", "Browser", "Forms"]

HTML = {"Accept": "text/html"}


class Forms(HTMLParser):
    """`found`: the hidden and filled fields of every form of a page by where it goes; `words`: what it says."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: dict[str, dict[str, str]] = {}
        self._into: dict[str, str] = {}
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag == "form":
            self._into = self.found.setdefault(given["action"], {})
        if tag == "input" and "name" in given and given.get("type") != "checkbox":
            self._into[given["name"]] = given.get("value") or ""

    def handle_data(self, data):
        self.text += " ".join(["", *data.split()])


class Browser:
    """One person's browser on a collector that asks for tokens, with one flag that is aimed at half of the fleet."""

    page = "/rollouts/clb"

    def __init__(self, guarded: Guarded) -> None:
        self.guarded, self.http = guarded, guarded.http
        who = {"author": "ann", "reason": "go", "now": guarded.now}
        with guarded.db.write() as conn:
            flags.create(conn, key="clb", feature="cross_layer_blocks", baseline_s=0, quiet_s=0, **who)
            flags.set_target(conn, "clb", flags.target(50, None), **who)

    def sign_in(self, scope: Scope, **more: str) -> Any:
        sent = {"token": self.guarded.secrets[scope]} | more
        return self.http.post("/login", data=sent, follow_redirects=False)

    def get(self, path: str = page) -> Any:
        return self.http.get(path, headers=HTML, follow_redirects=False)

    def forms(self) -> dict[str, dict[str, str]]:
        return Forms(self.get().text).found

    def send(self, action: str, fields: dict[str, str], **headers: str) -> Any:
        return self.http.post(f"{self.page}/{action}", data=fields, headers=HTML | headers, follow_redirects=False)

    def flag(self) -> dict[str, Any]:
        with self.guarded.db.read() as conn:
            return flags.shown(conn, "clb", 0)
