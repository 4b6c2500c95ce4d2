"""The checks, one module an area or two. `catalogue` has them all."""

from __future__ import annotations
