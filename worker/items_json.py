"""Items as JSON and back. One place knows how an item looks on disk and on the protocol.

Every item and part is an object with a `type`. Bytes are base64 text. Unknown fields are ignored
on reading, so a log of a newer version still restores.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import partial
from operator import eq
from typing import Any, cast, get_args

from cattrs import Converter
from cattrs.errors import CattrsError
from cattrs.gen import make_dict_unstructure_fn, override

from .items import (
    AssistantMessage,
    Covers,
    Image,
    Item,
    Reasoning,
    SummaryMessage,
    SystemNote,
    Text,
    ToolCall,
    ToolResult,
    UserMessage,
)

_ITEM_TYPES: dict[str, type[Any]] = {
    "user_message": UserMessage,
    "assistant_message": AssistantMessage,
    "tool_result": ToolResult,
    "summary_message": SummaryMessage,
    "system_note": SystemNote,
}
_NAMES: dict[type[Any], str] = {
    **{cls: name for name, cls in _ITEM_TYPES.items()},
    Text: "text",
    Image: "image",
    Reasoning: "reasoning",
    ToolCall: "tool_call",
}


def _same(value: object, cls: type[Any]) -> object:
    # Left alone, cattrs would make text of a number, and true of any text.
    if type(value) is not cls:
        message = f"expected {cls.__name__}, found {type(value).__name__}"
        raise TypeError(message)

    return value


def _parts_hook(converter: Converter, parts: object) -> Callable[[Any, object], object]:
    """Return what makes a tuple of parts, each told by its `type` alone.

    All at once, for the general way with tuples would be half of what a long history takes to load.
    """
    union, _ = get_args(parts)
    hooks = {_NAMES[cls]: converter.get_structure_hook(cls) for cls in get_args(union)}
    return lambda values, _: tuple([hooks[value["type"]](value, None) for value in values])


def _plain_parts_hook(converter: Converter, parts: object) -> Callable[[Any], object]:
    """Return what makes a list of dicts of a tuple of parts, all at once for the same reason."""
    union, _ = get_args(parts)
    hooks = {cls: converter.get_unstructure_hook(cls) for cls in get_args(union)}

    def plain(values: Any) -> list[object]:  # noqa: ANN401  a tuple of parts, if all is well
        try:
            return [hooks[type(value)](value) for value in values]
        except KeyError as error:
            message = f"a {error.args[0].__name__} is no part of such a message"
            raise TypeError(message) from None

    return plain


def _make_converter() -> Converter:
    converter = Converter(detailed_validation=False, prefer_attrib_converters=False)
    converter.register_unstructure_hook(bytes, lambda data: base64.b64encode(data).decode("ascii"))
    converter.register_structure_hook(bytes, lambda text, _: base64.b64decode(text, validate=True))
    for scalar in (str, int, bool):
        converter.register_structure_hook(scalar, _same)

    all_parts = (tuple[Text | Image, ...], tuple[Text | Reasoning | ToolCall, ...])
    for parts in all_parts:
        converter.register_structure_hook_func(partial(eq, parts), _parts_hook(converter, parts))

    def tagged(cls: type[Any], name: str) -> None:
        # Fields at their default are left out: a line says only what is so.
        optional = {
            key: override(omit_if_default=True)
            for key in ("absorbed_uids", "attachments", "signature", "blob")
        }
        own: dict[str, Any] = {
            key: value for key, value in optional.items() if key in cls.__annotations__
        }
        plain = make_dict_unstructure_fn(cls, converter, **own)
        converter.register_unstructure_hook(cls, lambda value: {"type": name, **plain(value)})

    # Parts come first: the items' own hooks are made of theirs.
    converter.register_unstructure_hook(Covers, make_dict_unstructure_fn(Covers, converter))
    for cls in (Text, Image, Reasoning, ToolCall):
        tagged(cls, _NAMES[cls])

    for parts in all_parts:
        hook = _plain_parts_hook(converter, parts)
        converter.register_unstructure_hook_func(partial(eq, parts), hook)

    for name, cls in _ITEM_TYPES.items():
        tagged(cls, name)

    return converter


_CONVERTER = _make_converter()
_HOOKS = {name: _CONVERTER.get_structure_hook(cls) for name, cls in _ITEM_TYPES.items()}
_DUMPS: dict[type[Any], Callable[[Item], dict[str, Any]]] = {
    cls: _CONVERTER.get_unstructure_hook(cls) for cls in _ITEM_TYPES.values()
}


def dump_item(item: Item) -> dict[str, Any]:
    """Return `item` as a JSON-ready dict with its `type` first.

    Raises `TypeError` for what is no item, or holds a part that its kind has not.
    """
    dump = _DUMPS.get(type(item))
    if dump is None:
        message = f"a {type(item).__name__} is not an item"
        raise TypeError(message)

    return dump(item)


def load_item(value: dict[str, Any]) -> Item:
    """Return the item that `value` describes.

    Raises:
        ValueError: The value is not an item: its type is unknown, or a field is missing or wrong.
    """
    try:
        return cast("Item", _HOOKS[value["type"]](value, None))
    except (KeyError, TypeError, AttributeError, ValueError, CattrsError) as error:
        kind = value.get("type") if isinstance(value, dict) else type(value).__name__
        message = f"not an item (type {kind!r}): {error!r}"
        raise ValueError(message) from error


def dump_items(items: tuple[Item, ...] | list[Item]) -> list[dict[str, Any]]:
    """Return the items as JSON-ready dicts."""
    return [dump_item(item) for item in items]


def load_items(values: list[dict[str, Any]]) -> list[Item]:
    """Return the items that `values` describe. Raises `ValueError` as `load_item` does."""
    return [load_item(value) for value in values]
