# SPDX-License-Identifier: Apache-2.0
"""OTLP in: bounded reading (`limits`), protobuf to rows (`decode`), to the store (`writer`), the route (`http`)."""
