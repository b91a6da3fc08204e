# SPDX-License-Identifier: Apache-2.0
"""Where pages are. A deployment's name may hold any printable text, and each has one address that nothing rewrites."""

from __future__ import annotations

from urllib.parse import quote, urlencode

__all__ = ["deployment"]

# What an address may end in beside the name of a deployment.
_SUFFIXES = (".json", ".events")


def deployment(name: str, suffix: str = "", flag: str = "") -> str:
    """The address of a deployment's page. suffix: `.json` of its twin, `.events`. flag: under which, if not the first.

    As a path; as `?id=` where a browser or proxy would shorten it (`..`, empty parts) or decode it twice (`%2F`), and
    where it ends like another page.
    """
    plain = "%" not in name and not name.endswith(_SUFFIXES) and {"", ".", ".."}.isdisjoint(name.split("/"))
    asked = {name: value for name, value in {"id": "" if plain else name, "flag": flag}.items() if value}
    query = f"?{urlencode(asked)}" if asked else ""
    return f"/deployments/{quote(name) if plain else ''}{suffix}{query}"
