# SPDX-License-Identifier: Apache-2.0
"""How a transfer can fail: vLLM's own `failure_type` values, and the two that it only counts."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["FailureKind"]


class FailureKind(StrEnum):
    """The value of `error.type` on a `kv.transfer` span. Names are vLLM's, so that logs and spans can be joined."""

    HANDSHAKE_SETUP_FAILED = "handshake_setup_failed"
    HANDSHAKE_FAILED = "handshake_failed"
    TRANSFER_SETUP_FAILED = "transfer_setup_failed"
    TRANSFER_FAILED = "transfer_failed"
    TRANSFER_EXCEPTION = "transfer_exception"
    TRANSFER_RELEASE_FAILED = "transfer_release_failed"
    NOTIFICATION_FAILED = "notification_failed"
    PUSH_REG_HANDSHAKE_FAILED = "push_reg_handshake_failed"
    PUSH_REG_NOTIF_FAILED = "push_reg_notif_failed"
    PUSH_HANDSHAKE_FAILED = "push_handshake_failed"
    # Ours: the engine stopped while the transfer was under way.
    SHUTDOWN = "shutdown"
    # Ours: vLLM named a kind that this version does not know; the name goes to `kvflags.failure`.
    OTHER = "other"
