"""`[memory]`: what is remembered beyond one session, and by which provider."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import Field

from ._expansion import PathText
from ._options import Options
from ._patterns import ENGINE_NAME
from ._section import Rule, Seconds, Section

FILE_OPTIONS: Mapping[str, tuple[int, int]] = {
    "prompt_max_bytes": (0, 65_536),
    "recall_max_bytes": (0, 65_536),
}
"""What the bundled `file` takes in its options, whole numbers, and between which bounds."""


class MemorySection(Section):
    """What is remembered beyond one session."""

    provider: Annotated[str, Field(pattern=ENGINE_NAME, max_length=64)] | None = None
    """`file`, or the name of a plugin; naming it here is what activates it. Absent: none."""
    folder: PathText | None = None
    """Where the provider keeps its data, relative to the manifest; pods that name the same folder
    share it. Default: `memory/<provider>/` under the home, where `file` has a folder a pod."""
    timeout_seconds: Seconds = 8
    """How long the pod waits for the provider before it goes on without what it would have said;
    three times as long at its start and before a compaction."""
    options: Options = {}
    """Handed to the provider as they are. `file` takes `prompt_max_bytes` and `recall_max_bytes`:
    how much of the memory is shown in the system prompt, and with a prompt that it fits."""

    @classmethod
    def broken_rules(cls, given: Mapping[str, object]) -> Iterator[Rule]:
        """Yield what has no provider to go to, and options that `file` does not have."""
        provider, options = given.get("provider"), given.get("options")
        if provider is None:
            for key in ("folder", "options"):
                if given.get(key) is not None:
                    yield key, "needs provider beside it"

        if provider == "file" and isinstance(options, Mapping):
            yield from _file_rules(options)


def _file_rules(options: Mapping[object, object]) -> Iterator[Rule]:
    for key, value in options.items():
        bounds = FILE_OPTIONS.get(str(key))
        if bounds is None:
            yield "options", f'has "{key}", and "file" takes {" and ".join(FILE_OPTIONS)} only'
        elif type(value) is not int or not bounds[0] <= value <= bounds[1]:
            low, high = bounds
            yield "options", f'has "{key}", which must be a whole number from {low} to {high}'
