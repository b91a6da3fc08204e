# SPDX-License-Identifier: Apache-2.0
"""The JSON API: checks what comes in, calls rollout in one transaction, puts errors into one envelope. No rules here.

Handlers are plain functions, which FastAPI runs in its thread pool: transactions block and never run on the event loop.
"""
