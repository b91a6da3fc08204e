# SPDX-License-Identifier: Apache-2.0
"""The canary: fixed prompts through prefill and decode, and on the decode engine alone; the answers must agree.

A corrupted KV block answers 200 and shows in no counter. It shows in the logprobs: what a decode engine computes from a
fetched cache must be what it computes from a cache of its own.
"""
