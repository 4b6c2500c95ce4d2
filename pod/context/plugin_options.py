"""`[context.options]` on their way into an engine: who took which of them, and what is left over.

An option goes to the first that takes it: the plugin's `register(ctx)`, which reads `ctx.options`;
a keyword of the engine's constructor; an attribute of the engine that is a plain setting.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, TypeAlias

from .attempt import tried
from .words import error_line

OptionValue: TypeAlias = Any
"""What JSON can hold."""

_OF_THE_HOST = frozenset(
    {"name", "context_length", "compression_count", "model_thresholds"}
    | {"last_prompt_tokens", "last_completion_tokens", "last_total_tokens"}
)
"""Attributes of an engine that are no settings: they are counted, or set by the host."""


class PluginOptions(Mapping[str, OptionValue]):
    """The options as a plugin sees them: read-only. What was read counts as taken."""

    def __init__(self, given: Mapping[str, OptionValue] | None = None) -> None:
        """Make a view of `given`, which nobody can change through it."""
        self._given = copy.deepcopy(dict(given or {}))
        self._taken: set[str] = set()
        self._missed: set[str] = set()

    def __getitem__(self, name: str) -> OptionValue:
        """Return an option's value, a copy; it is taken from now on."""
        if name not in self._given:
            self._missed.add(name)

        value = self._given[name]
        self._taken.add(name)
        return copy.deepcopy(value)

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(self._given)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._given)

    def __contains__(self, name: object) -> bool:
        """Tell whether an option is given; asking does not take it."""
        return name in self._given

    def peek(self, name: str) -> OptionValue:
        """Return an option's value without taking it."""
        return copy.deepcopy(self._given[name])

    def at(self, path: str, default: OptionValue = None) -> OptionValue:
        """Return the value at a dotted path (`retention.days`), or `default`; it is taken."""
        first, *rest = path.split(".")
        value = self.get(first, default)
        for step in rest:
            if not isinstance(value, Mapping) or step not in value:
                return default

            value = value[step]

        return value

    @property
    def missed(self) -> frozenset[str]:
        """The options that somebody has asked for and that are not given."""
        return frozenset(self._missed)

    @property
    def untaken(self) -> tuple[str, ...]:
        """The options that nobody has read, in the order given."""
        return tuple(name for name in self._given if name not in self._taken)


def made_with(cls: Callable[..., object], options: PluginOptions) -> Callable[[], object] | None:
    """Return how to make a `cls` with the options that its constructor names, or None.

    None where it wants something that is no option. Making it takes those options.
    """
    try:
        signature = inspect.signature(cls)
        named = [
            name
            for name, parameter in signature.parameters.items()
            if name in options and parameter.kind in _BY_NAME
        ]
        signature.bind(**dict.fromkeys(named))
    except (TypeError, ValueError):
        return None

    return lambda: cls(**{name: options[name] for name in named})


_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def set_attributes(engine: object, options: PluginOptions) -> list[str]:
    """Set the attributes that are named by options which nobody has taken.

    Only public settings count: of the same kind as what they replace, and not the host's own.
    Returns why an option that an attribute has the name of was not set.
    """
    refused = []
    for name in options.untaken:
        if name.startswith("_") or name in _OF_THE_HOST:
            continue

        why, failure = tried(lambda name=name: _set(engine, name, options))  # type: ignore[misc]  # bound now
        why = error_line(failure) if failure is not None else why or ""
        if why:
            options.get(name)  # It is told of here, and not again as one that nobody knows.
            refused.append(f"the option {name!r} cannot be set: {why}")

    return refused


def _set(engine: object, name: str, options: PluginOptions) -> str:
    """Set one attribute where there is such a setting; returns why not, where it does not fit."""
    if not hasattr(engine, name):
        return ""

    present = getattr(engine, name)
    if callable(present):
        return ""

    value = options.peek(name)
    if not _fits(value, present):
        return f"it is {_kind(value)}, and the engine has {_kind(present)} there"

    setattr(engine, name, options[name])
    return ""


def _fits(value: object, present: object) -> bool:
    if present is None or value is None:
        return True

    if isinstance(present, bool) or isinstance(value, bool):
        return isinstance(present, bool) and isinstance(value, bool)

    if isinstance(present, float):
        return isinstance(value, int | float)

    return isinstance(value, type(present))


def _kind(value: object) -> str:
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    return names.get(type(value), f"a {type(value).__name__}")


def known_options(engine: object, options: PluginOptions) -> frozenset[str]:
    """Return the names an option of this engine may have, as far as can be told.

    The keywords of its constructor, its public settings, and what its plugin asked for in vain. No
    code of the engine's is run for it.
    """
    cls = type(engine)
    keywords, _ = tried(lambda: list(inspect.signature(cls).parameters.values()))
    named = {keyword.name for keyword in keywords or () if keyword.kind in _BY_NAME}
    settings = {name for part in cls.__mro__ for name, value in vars(part).items() if _sets(value)}
    kept, _ = tried(lambda: set(vars(engine)))
    public = {name for name in settings | (kept or set()) if not name.startswith("_")}
    return options.missed | named | (public - _OF_THE_HOST)


def _sets(value: object) -> bool:
    return not (inspect.isroutine(value) or inspect.isdatadescriptor(value) or callable(value))


def leftover(
    options: PluginOptions, *, engine: str, reads_config: bool, known: Iterable[str] = ()
) -> str | None:
    """Return what to say of options that nobody took, or None where there are none.

    `reads_config`: whether the plugin's code reads Hermes's configuration, where they stand too.
    `known`: the names that options may have; one that is near is asked about.
    """
    if not options.untaken:
        return None

    plural = len(options.untaken) > 1
    names = sorted(known)
    named = ", ".join(_asked_about(name, names) for name in options.untaken)
    said = f"Context engine '{engine}' did not take the option{'s' * plural} {named}"
    if reads_config:
        return f"{said}; {'they stand' if plural else 'it stands'} in the configuration it reads"

    return (
        f"{said}: no keyword or attribute of the engine has "
        f"{'such names' if plural else 'that name'}, and its plugin did not ask"
    )


def _asked_about(name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, 1, _NEAR)
    return f"{name!r} (did you mean {near[0]!r}?)" if near else repr(name)


_NEAR = 0.75
"""How alike a name must be to one that there is to be a slip."""
