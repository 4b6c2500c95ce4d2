"""How a local model gets to know of tools: by its own chat template, or by one added to it.

llama.cpp takes three things from the chat template and from nothing else: the prompt, the grammar
that tool calls are held to, and the parser that finds them in the answer. Under a template without
tools it drops those of a request and says nothing.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, TypeAlias

from .gguf import GgufInfo

ToolsTold: TypeAlias = Literal["own", "added", "never"]
"""What tells a model of tools: its own template, one that was added to it, or nothing."""

_CHATML = Path(__file__).with_name("chatml_tools.jinja")
_IF_TOOLS = "{%- if tools or messages | selectattr('role', 'equalto', 'tool') | list %}"
_ELSE, _END = "{%- else %}", "{% endif %}"
_CHATML_MARKERS = frozenset({"<|im_start|>", "<|im_end|>"})
_END_OF_TEXT = "<|endoftext|>"
_MARKER = re.compile(r"<\|[^<>|]*\|>|</?think>")
# What is never closed goes on to the end, so that each character is looked at once.
_TAG = re.compile(r"\{#.*?(?:#\}|\Z)|\{[{%](.*?)(?:[}%]\}|\Z)", re.DOTALL)
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*(?:'|\Z)|"(?:[^"\\]|\\.)*(?:"|\Z)""", re.DOTALL)
_NAME = re.compile(r"\w+")


def tools_told(info: GgufInfo) -> ToolsTold:
    """Return what tells the model of tools."""
    own = info.chat_template or ""
    if info.has_tool_template or "tools" in _names(own):
        return "own"

    return "added" if not own or _is_plain_chatml(own) else "never"


def added_template(info: GgufInfo) -> str | None:
    """Return the template that tells the model of tools as well, or None to leave its own alone.

    It is the model's own wherever no tools are in play, to the byte.
    """
    if tools_told(info) != "added":
        return None

    with_tools, own = _CHATML.read_text(encoding="utf-8"), info.chat_template
    if not own:
        return with_tools  # llama.cpp would take it for a ChatML model, too.

    bos = "{{- bos_token }}" if "bos_token" in _names(own) else ""
    # Jinja drops one line break at a template's end, and one after a tag.
    without_tools = own.removesuffix("\n")
    return f"{_IF_TOOLS}{bos}{with_tools}{_ELSE}\n{without_tools}{_END}"


def _is_plain_chatml(template: str) -> bool:
    """Tell whether a template is ChatML and nothing beyond, such as a way to think."""
    markers = set(_MARKER.findall(template)) - {_END_OF_TEXT}
    return markers == _CHATML_MARKERS and "reasoning_content" not in template


def _names(template: str) -> set[str]:
    """Return the names in a template's code, without what it quotes."""
    code = (_QUOTED.sub("", tag) for tag in _TAG.findall(template))
    return {name for tag in code for name in _NAME.findall(tag)}
