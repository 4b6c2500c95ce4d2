"""Hermes's providers as ours: the kind that speaks to each, its address, its key's variable."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

from attrs import frozen

DEFAULT_LOCAL = "http://127.0.0.1:1234/v1"


@frozen
class Known:
    """A provider of Hermes's, in our words."""

    kind: str
    base_url: str | None = None
    """None: the kind's own address."""
    keys: tuple[str, ...] = ()
    """The variables that may hold its key, the first choice first."""
    server: str | None = None


def _hosted(base_url: str, *keys: str) -> Known:
    return Known("openai_compatible", base_url, keys)


def _like_claude(base_url: str, *keys: str) -> Known:
    return Known("anthropic", base_url, keys)


PROVIDERS: Mapping[str, Known] = {
    "anthropic": Known("anthropic", None, ("ANTHROPIC_API_KEY",)),
    "openai": Known("openai", None, ("OPENAI_API_KEY",)),
    "gemini": Known("gemini", None, ("GEMINI_API_KEY", "GOOGLE_API_KEY")),
    "openrouter": _hosted("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "deepseek": _hosted("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "xai": _hosted("https://api.x.ai/v1", "XAI_API_KEY"),
    "mistral": _hosted("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    "zai": _hosted("https://api.z.ai/api/paas/v4", "GLM_API_KEY", "ZAI_API_KEY", "Z_AI_API_KEY"),
    "kimi-coding": _hosted("https://api.moonshot.ai/v1", "KIMI_API_KEY"),
    "kimi-coding-cn": _hosted("https://api.moonshot.cn/v1", "KIMI_CN_API_KEY"),
    "minimax": _like_claude("https://api.minimax.io/anthropic/v1", "MINIMAX_API_KEY"),
    "minimax-cn": _like_claude("https://api.minimaxi.com/anthropic/v1", "MINIMAX_CN_API_KEY"),
    "nvidia": _hosted("https://integrate.api.nvidia.com/v1", "NVIDIA_API_KEY"),
    "huggingface": _hosted("https://router.huggingface.co/v1", "HF_TOKEN"),
    "alibaba": _hosted(
        "https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "DASHSCOPE_API_KEY"
    ),
    "xiaomi": _hosted("https://api.xiaomimimo.com/v1", "XIAOMI_API_KEY"),
    "arcee": _hosted("https://api.arcee.ai/api/v1", "ARCEEAI_API_KEY"),
    "gmi": _hosted("https://api.gmi-serving.com/v1", "GMI_API_KEY"),
    "upstage": _hosted("https://api.upstage.ai/v1", "UPSTAGE_API_KEY"),
    "novita": _hosted("https://api.novita.ai/openai/v1", "NOVITA_API_KEY"),
    "nebius": _hosted("https://api.tokenfactory.nebius.com/v1", "NEBIUS_API_KEY"),
    "stepfun": _hosted("https://api.stepfun.com/v1", "STEPFUN_API_KEY"),
    "deepinfra": _hosted("https://api.deepinfra.com/v1/openai", "DEEPINFRA_API_KEY"),
    "fireworks": _hosted("https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    "opencode-zen": _hosted("https://opencode.ai/zen/v1", "OPENCODE_ZEN_API_KEY"),
    "ai-gateway": _hosted("https://ai-gateway.vercel.sh/v1", "AI_GATEWAY_API_KEY"),
    "kilocode": _hosted("https://api.kilo.ai/api/gateway", "KILOCODE_API_KEY"),
    "nous-api": _hosted("https://inference-api.nousresearch.com/v1", "NOUS_API_KEY"),
    "ollama-cloud": _hosted("https://ollama.com/v1", "OLLAMA_API_KEY"),
    "lmstudio": Known("openai_compatible", DEFAULT_LOCAL, (), "lm_studio"),
    "vllm": Known("openai_compatible", None, (), "vllm"),
    "llamacpp": Known("openai_compatible", None, (), "llama.cpp"),
    "ollama": Known("ollama"),
    "custom": Known("openai_compatible"),
}

ALIASES: Mapping[str, str] = {
    "openai-api": "openai",
    "claude": "anthropic",
    "google": "gemini",
    "grok": "xai",
    "glm": "zai",
    "z-ai": "zai",
    "zhipu": "zai",
    "kimi": "kimi-coding",
    "moonshot": "kimi-coding",
    "hf": "huggingface",
    "qwen": "alibaba",
    "dashscope": "alibaba",
    "lm-studio": "lmstudio",
    "lm_studio": "lmstudio",
    "llama.cpp": "llamacpp",
    "llama-cpp": "llamacpp",
    "main": "custom",
}

SIGNED_IN: Mapping[str, str] = {
    "nous": "signs in by OAuth",
    "openai-codex": "signs in by OAuth",
    "codex": "signs in by OAuth",
    "copilot": "signs in by OAuth",
    "copilot-acp": "is another program's session",
    "minimax-oauth": "signs in by OAuth",
    "qwen-oauth": "signs in by OAuth",
    "google-gemini-cli": "signs in by OAuth",
    "vertex": "signs in by a service account",
    "bedrock": "signs in by AWS's own credentials",
    "azure-foundry": "has an address and a way of signing in of its own",
}
"""Those that no kind of ours speaks to as they are, and why."""

# In the order in which Hermes looks for a key where nothing is named.
_BY_KEY = ("openrouter", "anthropic", "openai", "gemini", "deepseek", "xai", "zai", "kimi-coding")


def provider_id(name: str) -> str:
    """Return what Hermes calls a provider by its name or an alias of it."""
    word = name.strip().lower()
    return ALIASES.get(word, word)


def by_address(base_url: str) -> str | None:
    """Return the provider whose address this is, or None."""
    host = host_of(base_url)
    for name, known in PROVIDERS.items():
        if known.base_url is not None and name != "lmstudio" and host_of(known.base_url) == host:
            return name

    own = {
        "api.anthropic.com": "anthropic",
        "api.openai.com": "openai",
        "generativelanguage.googleapis.com": "gemini",
    }
    return own.get(host)


def by_key(env: Mapping[str, str]) -> str | None:
    """Return the first provider whose key is set, or None."""
    for name in _BY_KEY:
        if any(env.get(key) for key in PROVIDERS[name].keys):
            return name

    return None


def key_variable(known: Known, env: Mapping[str, str]) -> str | None:
    """Return the variable that a provider's key is in: one that is set, else the usual one."""
    found = (key for key in known.keys if env.get(key))
    return next(found, known.keys[0] if known.keys else None)


def host_of(base_url: str) -> str:
    """Return the host of an address, empty where it has none."""
    try:
        return urlsplit(base_url).hostname or ""
    except ValueError:
        return ""


def native_model(kind: str, model: str) -> str:
    """Return a model's name as its maker's own API has it.

    Hermes calls Anthropic's as OpenRouter does: `anthropic/claude-opus-4.6`.
    """
    makers = {"anthropic": "anthropic/", "openai": "openai/", "gemini": "google/"}
    makers["openai_responses"] = "openai/"
    name = model.removeprefix(makers.get(kind, "")) if kind in makers else model
    if kind == "anthropic" and name.startswith("claude"):
        return re.sub(r"(?<=\d)\.(?=\d)", "-", name)

    return name
