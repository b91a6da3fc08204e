# SPDX-License-Identifier: Apache-2.0
"""Who may do what: tokens with a scope, what each route needs, and the guard that asks before a body is read."""
