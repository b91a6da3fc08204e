# SPDX-License-Identifier: Apache-2.0
"""Register at the start of an engine, as often as it takes within the bound, and never beyond it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from kvflags.decision import answer
from kvflags.decision.answer import Answer
from kvflags.decision.client import Client, ClientError
from kvflags.errors import KvflagsError, Unavailable
from kvflags.settings import Settings

__all__ = ["ask"]

# While nobody answers, ask again after 0.1, 0.2, 0.4 ... at most 5 s: a collector that is just being restarted is back
# within the usual 2 s, and one that a whole fleet waits for is not hammered.
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.1, 5.0

# One try takes at most this, or half of what is left where the operator allowed longer: a connection that was accepted
# by a dying collector must not use up a wait of minutes, nor a slow answer be cut off at each try.
_TRY_S = 2.0


def ask(settings: Settings, body: Mapping[str, Any], problems: list[str]) -> Answer | None:
    """The answer, or None with the reason added to `problems`. Takes at most `settings.wait_s`."""
    url, bound = settings.collector_url or "", settings.wait_s
    client = Client(url, settings.token, bound, ca_file=settings.ca_file, state_dir=settings.state_dir)
    until, pause = time.monotonic() + settings.wait_s, _FIRST_PAUSE_S
    while True:
        left = until - time.monotonic()
        try:
            return answer.read(client.register(body, min(left, max(_TRY_S, left / 2))))
        except ClientError as error:
            problems.append(_problem("refused", error))
            return None
        except Unavailable as error:
            if until - time.monotonic() <= pause:
                problems.append(_problem("unreachable", error))
                return None
        time.sleep(pause)
        pause = min(2 * pause, _LAST_PAUSE_S)


def _problem(code: str, error: KvflagsError) -> str:
    return f"{code}: {error.message}" + (f"; hint: {error.hint}" if error.hint else "")
