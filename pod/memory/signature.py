"""What a provider's method is called with: found out by looking at it, never by trying.

Providers were written against several versions of the contract.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping


def accepted(
    function: Callable[..., object], candidates: Mapping[str, object]
) -> dict[str, object]:
    """Return the keywords of `candidates` that `function` takes; none where it cannot be told."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {}  # A builtin or an extension type: it tells nothing about itself.

    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return dict(candidates)

    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = {parameter.name for parameter in parameters if parameter.kind in kinds}
    return {name: value for name, value in candidates.items() if name in names}
