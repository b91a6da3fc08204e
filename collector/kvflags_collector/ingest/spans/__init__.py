# SPDX-License-Identifier: Apache-2.0
"""The spans of a request, from the wire to columns: `decode`, and the two readers behind it."""
