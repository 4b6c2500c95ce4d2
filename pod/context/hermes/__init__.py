"""The modules that Hermes plugins import, served so that those plugins run unchanged.

Only what works is served; anything else is honestly missing. `served/` holds one file a module,
`finder.SERVED` names them.
"""

from __future__ import annotations

from .finder import SERVED, install, is_unserved, make_way, shadowed_by

__all__ = ["SERVED", "install", "is_unserved", "make_way", "shadowed_by"]
