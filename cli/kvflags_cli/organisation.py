# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: PLC0415 - what is heavy is imported when it is needed
"""The organisation's own side of a hub: its key, and whether its operator lets anything leave."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvflags.environ import says_no
from kvflags.errors import ErrorCode, UsageError

__all__ = ["key_file", "may_share", "private_key", "signed"]

Json = dict[str, Any]

# Whoever said no to any of these, to us or to vLLM, has said it.
_NO = ("DO_NOT_TRACK", "VLLM_DO_NOT_TRACK", "VLLM_NO_USAGE_STATS")


def may_share(environ: Mapping[str, str] = os.environ) -> str:
    """What opted in, in words. UsageError (`not_opted_in`) where nothing did, or anything says no."""
    hint = "to opt in, set KVFLAGS_SHARE=on; `kvflags feedback bundle KEY --show` prints all that would be sent"
    for name in _NO:
        if not says_no(environ.get(name, "")):
            raise UsageError(f"{name} says no: nothing is sent", hint=f"unset {name}", code=ErrorCode.NOT_OPTED_IN)
    mark = _vllm(environ) / "do_not_track"
    if os.path.exists(mark):
        raise UsageError(f"{mark} says no: nothing is sent", hint="remove it", code=ErrorCode.NOT_OPTED_IN)
    if says_no(environ.get("KVFLAGS_SHARE", "")):
        raise UsageError("this fleet has not opted in: nothing is sent", hint=hint, code=ErrorCode.NOT_OPTED_IN)
    return f"KVFLAGS_SHARE={environ['KVFLAGS_SHARE']} (environment)"


def key_file(environ: Mapping[str, str] = os.environ) -> Path:
    """KVFLAGS_ORGANISATION_KEY, else in the user's configuration."""
    given = environ.get("KVFLAGS_ORGANISATION_KEY", "").strip()
    return Path(given) if given else _folder(environ, "XDG_CONFIG_HOME", ".config") / "kvflags" / "organisation.key"


def private_key(path: Path) -> bytes:
    """The key, made on first use and readable by its owner alone. UsageError for a file that is no such key."""
    from kvflags.signatures import decoded, public_key

    try:
        if not os.path.exists(path):
            _make(path)
        open_to_others = path.stat().st_mode & 0o077
        key = decoded(path.read_text("ascii").strip())
        public_key(key)
    except OSError as error:
        raise _unusable(path, f"cannot be used: {error.strerror}") from error
    except ValueError as error:
        raise _unusable(path, "holds no key") from error
    if open_to_others:
        raise UsageError(f"{path} can be read by others", hint=f"chmod 600 {path}")
    return key


def _make(path: Path) -> None:
    """Whole or not at all, and on the disk: a key that is lost takes nothing back. Of two at once the first stays."""
    from kvflags.signatures import encoded, new_key

    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Readable by its owner alone, as the module makes all its files.
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f"{path.name}.") as file:
        file.write(encoded(new_key()) + "\n")
        file.flush()
        os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(file.name, path)


def signed(document: Json, key: bytes, name: str) -> Json:
    """The envelope: the document under `name`, the public key, and its signature."""
    from kvflags.signatures import canonical, encoded, public_key, signature

    return {name: document, "key": public_key(key), "signature": encoded(signature(key, canonical(document)))}


def _vllm(environ: Mapping[str, str]) -> Path:
    """Where vLLM keeps its configuration, as it looks for it itself."""
    given = environ.get("VLLM_CONFIG_ROOT", "")
    return Path(given).expanduser() if given else _folder(environ, "XDG_CONFIG_HOME", ".config") / "vllm"


def _unusable(path: Path, says: str) -> UsageError:
    return UsageError(f"{path} {says}", hint="name another with KVFLAGS_ORGANISATION_KEY, or move this one away")


def _folder(environ: Mapping[str, str], variable: str, below: str) -> Path:
    given = environ.get(variable, "")
    return Path(given) if given.startswith("/") else Path(environ.get("HOME", "/")) / below
