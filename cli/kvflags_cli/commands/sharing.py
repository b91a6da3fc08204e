# SPDX-License-Identifier: Apache-2.0
"""`kvflags feedback bundle`, `key`, `submit` and `revoke`: what a fleet tells a hub, and how it takes that back."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from kvflags.errors import ErrorCode, KvflagsError, Unavailable, UsageError
from kvflags_cli import organisation
from kvflags_cli.commands import connect
from kvflags_cli.complete import flag_keys
from kvflags_cli.options import AsJson, Collector, Key, example
from kvflags_cli.output import say, show

__all__ = ["add_to"]

Json = dict[str, Any]

# Pauses before it is tried again: a hub that restarts is back within seconds.
_AGAIN_S = (1.0, 3.0)
# A bundle with all that it may hold has about 20 kB; what is far longer is none.
_MOST_BYTES = 1 << 18

To = Annotated[str, typer.Option("--to", metavar="URL", help="The hub's address.")]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Write it, signed, to be carried.", show_default=False),
]
Show = Annotated[bool, typer.Option("--show", help="Print all of it, also with --out.")]
FlagOrFile = Annotated[
    str | None,
    typer.Argument(metavar="KEY", help="The flag.", show_default=False, autocompletion=flag_keys),
]
File = Annotated[
    Path | None,
    typer.Option("--file", metavar="FILE", help="Instead of a flag: a bundle that --out wrote.", show_default=False),
]
Receipt = Annotated[str | None, typer.Argument(metavar="RECEIPT", help="As `submit` printed it.", show_default=False)]
All = Annotated[bool, typer.Option("--all", help="Everything, for good: the key is refused from then on.")]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command(epilog=example("kvflags feedback bundle cross-layer-blocks --show"))(bundle)
    app.command(epilog=example("kvflags feedback key"))(key)
    app.command(
        epilog=example(
            "kvflags feedback submit cross-layer-blocks --to https://hub.example",
            "kvflags feedback submit --file bundle.json --to https://hub.example",
        )
    )(submit)
    app.command(epilog=example("kvflags feedback revoke RECEIPT --to https://hub.example"))(revoke)


def bundle(
    key: Key, out: Out = None, whole: Show = False, collector: Collector = None, as_json: AsJson = False
) -> None:
    """Make the anonymous aggregate that a hub takes, signed with the organisation's key. Sends nothing."""
    made = _made(key, collector)
    if out is not None:
        try:
            out.write_text(json.dumps(made, indent=2) + "\n")
        except OSError as error:
            raise UsageError(f"{out} cannot be written: {error.strerror}", hint="give another file to --out") from error
    if out is None or whole or as_json:
        show("bundle", made, as_json=as_json)
    say(f"Nothing was sent. {f'It is in {out}, signed.' if out else 'That is all of it; --out FILE writes it.'}")


def key(as_json: AsJson = False) -> None:
    """Show the organisation's public key, and where its private one lies. Makes one on first use."""
    made = organisation.signed({}, _key(), "document")
    show("organisation_key", {"key": made["key"], "file": str(organisation.key_file())}, as_json=as_json)


def submit(
    to: To,
    key: FlagOrFile = None,
    file: File = None,
    collector: Collector = None,
    as_json: AsJson = False,
) -> None:
    """Send a bundle to a hub, where this fleet has opted in (KVFLAGS_SHARE=on), and print the receipt."""
    say(f"opted in by {organisation.may_share()}")
    if (key is None) == (file is None):
        raise UsageError("say what to send", hint="give a flag, or --file FILE")
    made = _read(file) if file is not None else _made(str(key), collector)
    receipt = _delivered(to, made)
    show("receipt", receipt, as_json=as_json)
    if not receipt["counted"]:
        say("It is stored, and counted once the hub's operator has admitted your organisation.")


def revoke(to: To, receipt: Receipt = None, everything: All = False, as_json: AsJson = False) -> None:
    """Take a bundle back from a hub, or, with --all, everything and for good."""
    if (receipt is None) != everything:
        raise UsageError("say what to take back", hint="give a receipt, or --all")
    path = organisation.key_file()
    if not os.path.exists(path):
        raise UsageError(
            f"there is no key in {path}, so nothing was sent", hint="name it with KVFLAGS_ORGANISATION_KEY"
        )
    document = {"schema": "kvflags.revocation/1", "bundle": receipt}
    envelope = organisation.signed(document, organisation.private_key(path), "revocation")
    show("revoked", _sent(to, "revocations", envelope), as_json=as_json)


def _made(flag: str, collector: str | None) -> Json:
    """The bundle of a flag, signed. Its fleet's pseudonym is one that nobody without the key can make."""
    with connect(collector) as client:
        document = client.get("flags", flag, "bundle")
    secret = _key()
    document["fleet"] = hmac.new(secret, document["fleet"].encode(), hashlib.sha256).hexdigest()[:16]
    return organisation.signed(document, secret, "bundle")


def _key() -> bytes:
    """The private key; whoever gets a new one is told."""
    path = organisation.key_file()
    known = os.path.exists(path)
    secret = organisation.private_key(path)
    if not known:
        say(f"Made your organisation's key, {path}. Keep a copy: only it takes back what it signed.")
    return secret


def _read(file: Path) -> Json:
    hint = "make one with `kvflags feedback bundle KEY --out FILE`"
    try:
        with file.open("rb") as opened:
            found = json.loads(opened.read(_MOST_BYTES))
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}", hint=hint) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is no bundle", hint=hint) from error
    if not isinstance(found, dict) or not {"bundle", "key", "signature"} <= found.keys():
        raise UsageError(f"{file} is no bundle", hint=hint)
    return found


def _delivered(to: str, envelope: Json) -> Json:
    """The receipt. What the hub has already is delivered: the answer to an earlier attempt may have been lost."""
    try:
        return _sent(to, "bundles", envelope)
    except KvflagsError as error:
        if error.code != ErrorCode.DUPLICATE_BUNDLE or error.detail is None:
            raise
        say(f"{error.message}: nothing was changed")
        return dict(error.detail)


def _sent(to: str, place: str, envelope: Json) -> Json:
    """The hub's answer. One that cannot be reached, or is busy, is asked again: all that is sent may be repeated."""
    for pause_s in (*_AGAIN_S, None):
        say(f"sending to {to}")
        try:
            return _post(to, place, envelope)
        except Unavailable as error:
            if pause_s is None:
                raise
            say(f"{error.message}; again in {pause_s:g} s")
            time.sleep(pause_s)
    raise AssertionError("the last attempt returns or raises")


def _post(to: str, place: str, envelope: Json) -> Json:
    # Imported late, as everywhere: `--help` needs no HTTP.
    from kvflags_cli.client import Client  # noqa: PLC0415 - with --help they are not needed
    from kvflags_cli.settings import hub  # noqa: PLC0415 - with --help they are not needed

    with Client(hub(to)) as client:
        return client.post("hub", place, body=envelope)
