# SPDX-License-Identifier: Apache-2.0
"""An OpenFeature provider over OFREP, for programs that ask often (`pip install 'kvflags[openfeature]'`).

The public OFREP provider asks anew for every evaluation, and while the collector is silent gives the default of the
code, after 5 s each. This one asks for all flags of a deployment at once, sends the ETag of what it has, answers from
that for `fresh_s`, and goes on with it, reason STALE, while the collector is silent.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import (
    FlagNotFoundError,
    GeneralError,
    InvalidContextError,
    TargetingKeyMissingError,
    TypeMismatchError,
)
from openfeature.flag_evaluation import FlagResolutionDetails, FlagValueType, Reason
from openfeature.provider import AbstractProvider, Metadata

__all__ = ["KvflagsProvider"]

# Contexts that answers are kept for; a program asks for its own deployment, or for those of one fleet.
_KEPT = 4096
# A collector that is silent is asked again this much later: each attempt can cost its caller the timeout.
_AGAIN_S = 5.0
_REFUSED = {"TARGETING_KEY_MISSING": TargetingKeyMissingError, "INVALID_CONTEXT": InvalidContextError}


@dataclass(frozen=True, slots=True)
class _Answer:
    flags: Mapping[str, Mapping[str, Any]]
    tag: str | None
    ask_again_s: float
    reason: str | None = None


class KvflagsProvider(AbstractProvider):
    """Flags of the deployment that the context's targeting key names. All are booleans, with variants `on` and `off`.

    url: the collector. timeout_s bounds each request; a program waits for one at most every 5 s. Any thread may ask.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        fresh_s: float = 30.0,
        timeout_s: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._address = f"{url.rstrip('/')}/ofrep/v1/evaluate/flags"
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._fresh_s, self._timeout_s, self._clock = fresh_s, timeout_s, clock
        self._answers: OrderedDict[str, _Answer] = OrderedDict()
        self._lock = threading.Lock()
        # No proxy: one that is set for downloads must not see the fleet.
        self._http = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def get_metadata(self) -> Metadata:
        """Its name, as telemetry has it."""
        return Metadata(name="kvflags")

    def resolve_boolean_details(
        self, flag_key: str, default_value: bool, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[bool]:
        """The flag for the context's deployment. FlagNotFoundError, or what was wrong with the context."""
        answer = self._answer(_asked(evaluation_context))
        flag = answer.flags.get(flag_key)
        if flag is None:
            raise FlagNotFoundError(f"there is no flag {flag_key!r}")
        value = flag.get("value", default_value)
        if not isinstance(value, bool):
            raise TypeMismatchError(f"{flag_key!r} is no boolean")
        reason = Reason(answer.reason or flag["reason"])
        return FlagResolutionDetails(
            value=value, variant=flag["variant"], reason=reason, flag_metadata=flag.get("metadata", {})
        )

    def resolve_string_details(
        self, flag_key: str, default_value: str, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[str]:
        """TypeMismatchError: no flag is a string."""
        self._other_type(flag_key)

    def resolve_integer_details(
        self, flag_key: str, default_value: int, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[int]:
        """TypeMismatchError: no flag is a number."""
        self._other_type(flag_key)

    def resolve_float_details(
        self, flag_key: str, default_value: float, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[float]:
        """TypeMismatchError: no flag is a number."""
        self._other_type(flag_key)

    def resolve_object_details(
        self,
        flag_key: str,
        default_value: Sequence[FlagValueType] | Mapping[str, FlagValueType],
        evaluation_context: EvaluationContext | None = None,
    ) -> FlagResolutionDetails[Sequence[FlagValueType] | Mapping[str, FlagValueType]]:
        """TypeMismatchError: no flag is an object."""
        self._other_type(flag_key)

    def _other_type(self, flag_key: str) -> NoReturn:
        raise TypeMismatchError(f"{flag_key!r} is a boolean, as all flags of kvflags are")

    def _answer(self, asked: str) -> _Answer:
        # One at a time: whoever waits finds the answer that the one before it got.
        with self._lock:
            before = self._answers.get(asked)
            if before is not None and self._clock() < before.ask_again_s:
                return before
            found = self._ask(asked, before)
            self._answers[asked] = found
            self._answers.move_to_end(asked)
            if len(self._answers) > _KEPT:
                self._answers.popitem(last=False)
            return found

    def _ask(self, asked: str, before: _Answer | None) -> _Answer:
        tag = {"If-None-Match": before.tag} if before and before.tag else {}
        request = urllib.request.Request(self._address, asked.encode(), self._headers | tag, method="POST")  # noqa: S310 - the operator's address
        try:
            with self._http.open(request, timeout=self._timeout_s) as response:
                flags = {flag["key"]: flag for flag in json.load(response)["flags"] if "errorCode" not in flag}
                return _Answer(flags, response.headers["ETag"], self._clock() + self._fresh_s)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 304 and before is not None:
                    return _Answer(before.flags, before.tag, self._clock() + self._fresh_s)
                if error.code == 400:
                    _refuse(error)
                return self._stale(before, f"the collector answered {error.code}")
        except (OSError, ValueError, KeyError, TypeError) as error:
            return self._stale(before, f"the collector does not answer: {error}")

    def _stale(self, before: _Answer | None, why: str) -> _Answer:
        if before is None:
            raise GeneralError(why)
        return _Answer(before.flags, before.tag, self._clock() + _AGAIN_S, Reason.STALE)


def _asked(context: EvaluationContext | None) -> str:
    given = dict(context.attributes) if context else {}
    if context and context.targeting_key:
        given["targetingKey"] = context.targeting_key
    return json.dumps({"context": given}, sort_keys=True, default=str)


def _refuse(error: urllib.error.HTTPError) -> NoReturn:
    try:
        said = json.load(error)
    except ValueError as other:
        raise GeneralError("the address answers, but speaks no OFREP") from other
    raise _REFUSED.get(said.get("errorCode"), GeneralError)(said.get("errorDetails", ""))
