# SPDX-License-Identifier: Apache-2.0
"""The fields that requests are made of, with their bounds."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

from kvflags.inert import inert
from kvflags.settings import id_problem
from kvflags_collector.access.actor import acting

__all__ = [
    "NAME",
    "Author",
    "Body",
    "Count",
    "Criteria",
    "Day",
    "Id",
    "Key",
    "Label",
    "Line",
    "Problems",
    "Remark",
    "Revision",
    "Sign",
    "Small",
    "Tags",
    "Text",
    "Variant",
    "Word",
]


def _identity(value: str) -> str:
    if wrong := id_problem(value):
        raise ValueError(wrong)
    return value


def _printable(value: str) -> str:
    # Reasons may have several lines; anything else that moves a terminal's cursor may not.
    if not all(character.isprintable() or character in "\n\t" for character in value):
        raise ValueError("has control characters")
    return value


def _a_day(value: str) -> str:
    try:
        date.fromisoformat(value)
    except ValueError:
        raise ValueError("is not a day of the calendar") from None
    return value


def _signature(value: Any) -> Any:  # noqa: ANN401 - whatever was sent
    if value is not None:
        return value
    if (name := acting.get()) is None:
        raise ValueError("is missing, and no token says who this is")
    return name


def _remark(value: str) -> str:
    if not value.strip():
        raise ValueError("is empty")
    if len(value.encode()) > _REMARK_BYTES:
        raise ValueError(f"is longer than {_REMARK_BYTES} bytes")
    return inert(value)


# Room for a stack trace, and little enough that a thousand of them are a page.
_REMARK_BYTES = 10_000

# For whoever reads the OpenAPI document; the validators know more: what Python calls printable.
_ONE_LINE: dict[str, JsonValue] = {"pattern": r"^[^\x00-\x1f\x7f]*$"}
_LINES: dict[str, JsonValue] = {"pattern": r"^[^\x00-\x08\x0b-\x1f\x7f]*$"}
NAME: dict[str, JsonValue] = {"pattern": r"^[^\x00-\x20\x7f]([^\x00-\x1f\x7f]*[^\x00-\x20\x7f])?$"}

Id = Annotated[str, Field(max_length=253, json_schema_extra=NAME), AfterValidator(_identity)]
Key = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
Word = Annotated[str, Field(max_length=64, json_schema_extra=_ONE_LINE), AfterValidator(_printable)]
Text = Annotated[str, Field(min_length=1, max_length=2000, json_schema_extra=_LINES), AfterValidator(_printable)]
Line = Annotated[str, Field(max_length=200, json_schema_extra=_ONE_LINE), AfterValidator(_printable)]
Author = Annotated[Line, Field(min_length=1), BeforeValidator(_signature)]
# People paste logs into it: what would act on a terminal or a page is written out, not refused.
Remark = Annotated[str, Field(max_length=_REMARK_BYTES), AfterValidator(_remark)]
Sign = Literal["positive", "negative"]
Tags = Annotated[list[Literal["latency", "errors", "quality", "memory", "crash"]], Field(max_length=16)]
Count = Annotated[int, Field(ge=0, le=2**53)]
# Revisions count one by one, and their column is of 32 bits.
Revision = Annotated[int, Field(ge=1, le=2**31 - 1)]
Small = Annotated[int, Field(ge=0, le=1_000_000)]
Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9._/-]{1,128}$")]
Variant = Literal["on", "off"]
Criteria = Annotated[list[Text], Field(max_length=50)]
Day = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$", examples=["2027-06-01"]), AfterValidator(_a_day)]
Problems = Annotated[list[Word], Field(max_length=64)]


class Body(BaseModel):
    # Numbers in strings and strings in numbers are refused: what was stored must be what was sent.
    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)
