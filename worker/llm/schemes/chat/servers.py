"""The servers that speak Chat Completions, and what each makes of it: one table, by host.

Sources, as of November 2026: the vendors' guides to reasoning and tool calling (DeepSeek "Thinking
Mode", Z.AI "Thinking Mode", Moonshot "Using Thinking Models", OpenRouter "Reasoning Tokens",
Cerebras "Reasoning", Fireworks "Thinking history"), Mistral's published request validator, the
parameters that the Vercel AI SDK and pydantic-ai send to each and the exchanges they recorded, and
the errors quoted in public bug reports. What is not established there is left at the default.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from attrs import evolve

from worker.llm.schemes.chat.quirks import CallIds, ChatQuirks

_ANY_EFFORT = ("minimal", "low", "medium", "high", "xhigh", "max")
_LOW_TO_HIGH = {"minimal": "low", "xhigh": "high", "max": "high"}

OPENAI = ChatQuirks(
    max_tokens_key="max_completion_tokens",
    cache_key=True,
    openai_models=True,
    call_ids=CallIds(r"[\x21-\x7e]{1,40}", 40),
)
COMPATIBLE = ChatQuirks()

# reasoning_details hold signatures and ciphertext of whoever serves the model.
OPENROUTER = ChatQuirks(effort_form="reasoning", reasoning="reasoning_details")

# In thinking mode each answer needs its reasoning_content, be it empty, once tools are in play.
DEEPSEEK = ChatQuirks(
    effort_form="thinking_or_effort",
    send_response_format=False,
    reasoning="reasoning_content",
    missing_reasoning="",
)

_GROQ = ChatQuirks(
    max_tokens_key="max_completion_tokens", efforts=_LOW_TO_HIGH, reasoning="reasoning"
)
_ON = dict.fromkeys(_ANY_EFFORT, "default")
GROQ = evolve(_GROQ, by_model=(("qwen/qwen3*", evolve(_GROQ, efforts=_ON)),))

MISTRAL = ChatQuirks(
    bridge_after_tools=True,
    include_usage=False,  # An unknown field is refused; usage comes unasked.
    efforts=dict.fromkeys(_ANY_EFFORT, "high"),
    reasoning="thinking_blocks",
    call_ids=CallIds(r"[a-zA-Z0-9]{9}", 9),
)

_MOONSHOT = ChatQuirks(
    effort_form="thinking_or_effort",
    efforts={"minimal": "low", "medium": "high", "xhigh": "high"},
    cache_key=True,
    reasoning="reasoning_content",
)
# These think unless told not to. They take one temperature only, and an empty reasoning_content
# counts as a missing one.
_KIMI_THINKING = evolve(_MOONSHOT, send_temperature=False, missing_reasoning=" ")
_KIMI_NAMES = ("kimi-k2.[5-9]*", "kimi-k[3-9]*", "kimi-*thinking*", "kimi-for-coding*", "k[3-9]*")
MOONSHOT = evolve(_MOONSHOT, by_model=tuple((name, _KIMI_THINKING) for name in _KIMI_NAMES))

_XAI = ChatQuirks(max_tokens_key="max_completion_tokens", efforts=_LOW_TO_HIGH)
XAI = evolve(
    _XAI,
    by_model=(
        ("grok-4.20*reasoning", evolve(_XAI, effort_form="none")),
        ("grok-4.6*", evolve(_XAI, efforts={"minimal": "low", "max": "xhigh"})),
    ),
)

TOGETHER = ChatQuirks()

FIREWORKS = ChatQuirks(efforts=_LOW_TO_HIGH, cache_key=True, reasoning="reasoning_content")

_CEREBRAS = ChatQuirks(
    max_tokens_key="max_completion_tokens",
    efforts=_LOW_TO_HIGH,
    cache_key=True,
    reasoning="reasoning",
)
CEREBRAS = evolve(
    _CEREBRAS,
    by_model=(("zai-*", evolve(_CEREBRAS, effort_form="none", reasoning="think_tags")),),
)

DASHSCOPE = ChatQuirks(effort_form="enable_thinking", parallel_tool_calls=True)

_ZAI = ChatQuirks(effort_form="thinking", send_response_format=False, reasoning="reasoning_content")
_GLM_WITH_EFFORT = evolve(
    _ZAI,
    effort_form="thinking_or_effort",
    efforts={"minimal": "low", "medium": "high", "xhigh": "max"},
)
ZAI = evolve(_ZAI, by_model=(("glm-5.[2-9]*", _GLM_WITH_EFFORT),))

# These hand the field on to the model's chat template.
LM_STUDIO = ChatQuirks(reasoning="reasoning_content")
LLAMA_SERVER = ChatQuirks(grammar=True, form_beside_tools=False, reasoning="reasoning_content")
VLLM = ChatQuirks(reasoning="reasoning")
OLLAMA_CHAT = ChatQuirks(efforts={"minimal": "low", "xhigh": "high"}, reasoning="reasoning")

SERVERS: tuple[tuple[tuple[str, ...], ChatQuirks], ...] = (
    (("api.openai.com", "*.api.openai.com", "*.openai.azure.com"), OPENAI),
    (("openrouter.ai", "*.openrouter.ai"), OPENROUTER),
    (("api.deepseek.com",), DEEPSEEK),
    (("api.groq.com",), GROQ),
    (("api.mistral.ai", "codestral.mistral.ai"), MISTRAL),
    (("api.moonshot.ai", "api.moonshot.cn", "api.kimi.com"), MOONSHOT),
    (("api.x.ai", "*.api.x.ai"), XAI),
    (("api.together.xyz", "api.together.ai"), TOGETHER),
    (("api.fireworks.ai",), FIREWORKS),
    (("api.cerebras.ai",), CEREBRAS),
    (("dashscope*.aliyuncs.com", "*.dashscope*.aliyuncs.com"), DASHSCOPE),
    (("api.z.ai", "open.bigmodel.cn"), ZAI),
    (("localhost:1234", "127.0.0.1:1234", "[[]::1]:1234"), LM_STUDIO),
    (("*:11434",), OLLAMA_CHAT),
)
"""Patterns of hosts, with the port where that tells the server, and the quirks behind them."""

NAMED: dict[str, ChatQuirks] = {"llama.cpp": LLAMA_SERVER, "lm_studio": LM_STUDIO, "vllm": VLLM}
"""Servers that stand on a host of the user's own, so that no address tells them."""

_BY_KIND = {"openai": OPENAI, "local": LLAMA_SERVER}


def quirks_for(base_url: str, kind: str) -> ChatQuirks:
    """Return the quirks of the server at `base_url`; `kind` decides where the host is not known."""
    try:
        host = urlsplit(base_url).netloc.rpartition("@")[2].lower()
    except ValueError:
        host = ""

    bare = host if host.endswith("]") else host.rpartition(":")[0] or host
    for patterns, quirks in SERVERS:
        if any(fnmatchcase(name, pattern) for name in (host, bare) for pattern in patterns):
            return quirks

    return _BY_KIND.get(kind, COMPATIBLE)
