# SPDX-License-Identifier: Apache-2.0
"""What a hub does with what it is sent: check, store once, take back. Every refusal names what is wrong."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, RowMapping, func, select, update

from kvflags.errors import Conflict, ErrorCode, NotFound, UsageError
from kvflags.signatures import canonical, decoded, holds
from kvflags_collector.hub import register
from kvflags_collector.hub.plausible import implausible
from kvflags_collector.hub.register import Standing
from kvflags_collector.hub.schema import Bundle, Revocation
from kvflags_collector.store.hub_tables import hub_bundles
from kvflags_collector.times import SECOND, rfc3339

__all__ = ["receive", "revoke"]

Json = dict[str, Any]

# Anybody may send, so what nobody has looked at yet is bounded, and so is what one key may fill.
_MOST_PENDING = 200
_MOST_BUNDLES = 2_000


def receive(conn: Connection, bundle: Bundle, sent: Json, now: int) -> Json:
    """Store a signed bundle; the receipt. `sent`: the envelope as it came, since that is what was signed.

    UsageError (`bad_signature`, `implausible_bundle`), Conflict (`duplicate_bundle`, `revoked_bundle`, `hub_full`,
    `organisation_left`).
    """
    key, document = sent["key"], sent["bundle"]
    _check_signature(key, document, sent["signature"])
    digest = hashlib.sha256(key.encode() + b"\0" + canonical(document)).hexdigest()
    _refuse_known(conn, digest)
    _refuse_leaver(conn, key)
    if rule := implausible(bundle, datetime.fromtimestamp(now / SECOND, UTC).date()):
        raise _implausible(rule.name, rule.says)
    figures = hashlib.sha256(canonical([document["effects"], document["strata"]])).hexdigest()
    _refuse_copy(conn, key, document, figures)
    _refuse_flood(conn, key)
    row = {
        "digest": digest,
        "key": key,
        "feature": bundle.feature,
        "fleet": bundle.fleet,
        "figures": figures,
        "document": document,
        "signature": sent["signature"],
        "recorded_us": now,
    }
    conn.execute(hub_bundles.insert().values(**row))
    return _receipt(conn, digest)


def revoke(conn: Connection, asked: Revocation, sent: Json, now: int) -> Json:
    """Take back one bundle, or all and for good; repeating it changes nothing.

    UsageError (`bad_signature`), NotFound (`unknown_bundle`) for one that this key never sent.
    """
    key = sent["key"]
    _check_signature(key, sent["revocation"], sent["signature"])
    b = hub_bundles.c
    own = (b.key == key,) if asked.bundle is None else (b.key == key, b.digest == asked.bundle)
    known = conn.scalar(select(func.count()).select_from(hub_bundles).where(*own))
    if not known:
        raise NotFound(
            "this key sent no such bundle here",
            hint="take the receipt that `kvflags feedback submit` printed, and the same key",
            code=ErrorCode.UNKNOWN_BUNDLE,
        )
    given = {"revoked_us": now, "revocation": sent["signature"]}
    conn.execute(update(hub_bundles).where(*own, b.revoked_us.is_(None)).values(**given))
    if asked.bundle is None and register.standing(conn, key) is not Standing.LEFT:
        register.record(conn, key, Standing.LEFT, name="", author="its own signature", now=now)
    return {"organisation": register.organisation(key), "revoked": known, "left": asked.bundle is None}


def _check_signature(key: str, document: Any, signature: str) -> None:  # noqa: ANN401 - any JSON document
    try:
        ours = holds(key, canonical(document), decoded(signature))
    except ValueError:
        ours = False
    if not ours:
        raise UsageError(
            "the signature is not one of this key over this document",
            hint="it was changed on the way, or made by hand: make it again with `kvflags feedback bundle`",
            code=ErrorCode.BAD_SIGNATURE,
        )


def _refuse_known(conn: Connection, digest: str) -> None:
    found = _row(conn, digest)
    if found is None:
        return
    if found["revoked_us"] is not None:
        raise Conflict(
            "this bundle was taken back, and does not come again",
            hint="make a new one with `kvflags feedback bundle`",
            code=ErrorCode.REVOKED_BUNDLE,
        )
    raise Conflict(
        "this bundle is here already",
        hint="nothing is to be done: it is counted once",
        code=ErrorCode.DUPLICATE_BUNDLE,
        detail=_receipt(conn, digest),
    )


def _refuse_leaver(conn: Connection, key: str) -> None:
    if register.standing(conn, key) is Standing.LEFT:
        raise Conflict(
            "the organisation of this key took back everything and left",
            hint="to take part again, move the key file away: a new key is made",
            code=ErrorCode.ORGANISATION_LEFT,
        )


def _refuse_copy(conn: Connection, key: str, document: Json, figures: str) -> None:
    """Two fleets never measure the same to six digits; one that sends under two names does."""
    if not document["effects"]:
        return
    b = hub_bundles.c
    same = select(b.key, b.fleet).where(b.feature == document["feature"], b.figures == figures, b.revoked_us.is_(None))
    if any((one.key, one.fleet) != (key, document["fleet"]) for one in conn.execute(same)):
        raise _implausible("copied", "another fleet sent the very same figures")


def _refuse_flood(conn: Connection, key: str) -> None:
    b = hub_bundles.c
    own = conn.scalar(select(func.count()).select_from(hub_bundles).where(b.key == key)) or 0
    if own >= _MOST_BUNDLES:
        raise _full(f"one organisation may send {_MOST_BUNDLES} bundles")
    if own:
        return
    senders, said = set(conn.scalars(select(b.key).distinct())), register.standings(conn)
    if len(senders - said.keys()) >= _MOST_PENDING:
        raise _full(f"{_MOST_PENDING} organisations wait to be admitted")


def _implausible(name: str, says: str) -> UsageError:
    return UsageError(
        f"the bundle cannot be right: {says}",
        hint="the rules are in docs/hub.md; check it with `kvflags feedback bundle KEY --show`",
        code=ErrorCode.IMPLAUSIBLE_BUNDLE,
        detail={"rule": name},
    )


def _full(says: str) -> Conflict:
    return Conflict(
        f"the hub takes no more: {says}",
        hint="ask its operator to look (`kvflags hub organisations`)",
        code=ErrorCode.HUB_FULL,
    )


def _row(conn: Connection, digest: str) -> RowMapping | None:
    return conn.execute(select(hub_bundles).where(hub_bundles.c.digest == digest)).mappings().first()


def _receipt(conn: Connection, digest: str) -> Json:
    """counted: whether it enters reports; until an admin admits the organisation it does not."""
    row = _row(conn, digest)
    assert row is not None, "what was stored is there"
    state = register.standing(conn, row["key"])
    return {
        "receipt": digest,
        "organisation": register.organisation(row["key"]),
        "feature": row["feature"],
        "recorded_at": rfc3339(row["recorded_us"]),
        "state": state.value,
        "counted": state is Standing.ADMITTED,
    }
