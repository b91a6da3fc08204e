# SPDX-License-Identifier: Apache-2.0
"""Flags and the ledger: who is treated, what each generation was told, who still lives.

Functions over an open connection: the caller owns the transaction, and `now` (microseconds, UTC) comes from outside.
Nothing here serves HTTP. What writes says so; all writes of one call belong in one transaction.
"""
