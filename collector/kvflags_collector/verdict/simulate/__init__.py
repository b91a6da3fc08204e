# SPDX-License-Identifier: Apache-2.0
"""Synthetic fleets, fed to the same functions as real ones: for operators who plan, and for the benchmark.

`plan` says what is true, `fleet` draws what would be measured, `rollout` looks at it day by day, `summary` counts.
"""
