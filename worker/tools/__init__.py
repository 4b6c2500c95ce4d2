"""Tools: what a model may call, and what a call gives back."""

from __future__ import annotations

from .arguments import BadArguments
from .commands import run_command
from .definition import Tool, tool
from .results import ToolOutput, render_output

__all__ = ["BadArguments", "Tool", "ToolOutput", "render_output", "run_command", "tool"]
