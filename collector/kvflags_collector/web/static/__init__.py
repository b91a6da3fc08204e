# SPDX-License-Identifier: Apache-2.0
"""The stylesheet; a package, so that it is in the wheel."""
