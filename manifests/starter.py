"""The manifest that `pod manifest init` writes: small, commented, and right as it stands."""

from __future__ import annotations

from pathlib import Path

from ._patterns import NAME_LENGTH, POD_NAME, WORDS, is_pod_name, suggested_pod_name

__all__ = ["starter_manifest", "suggested_pod_name"]

_TEMPLATE = Path(__file__).with_name("templates") / "starter.toml"
_NAME = 'name = "my-pod"'
_PROVIDER = 'kind = "local"\nmodel = "SmolLM2-135M-Instruct"\n'

# What fits kinds whose models think before they answer, have small windows, or no known price.
_THINKING = {"max_tokens = 2048": "max_tokens = 8192"}
_UNPRICED = {"requests = 50, cost = 1.0": "requests = 50"}
_FITTED = {
    **dict.fromkeys(("anthropic", "openai", "openai_responses", "gemini"), _THINKING),
    "ollama": {"max_tokens = 2048": "max_tokens = 4096", "= 80000": "= 10000", **_UNPRICED},
    "openai_compatible": {"= 80000": "= 20000", **_UNPRICED},
    "local": {"= 80000": "= 5000", **_UNPRICED},
    "scripted": _UNPRICED,
    "replay": _UNPRICED,
}

# The lines of [provider], by its kind.
_PROVIDERS = {
    "anthropic": """\
kind = "anthropic"
model = "claude-sonnet-5-5"
api_key_env = "ANTHROPIC_API_KEY"
""",
    "openai": """\
kind = "openai"
model = "gpt-5.5"
api_key_env = "OPENAI_API_KEY"
""",
    "openai_responses": """\
kind = "openai_responses"
model = "gpt-5.5"
api_key_env = "OPENAI_API_KEY"
""",
    "gemini": """\
kind = "gemini"
model = "gemini-3.8-flash"
api_key_env = "GEMINI_API_KEY"
""",
    "ollama": """\
kind = "ollama"
model = "qwen3:8b"                      # `ollama pull qwen3:8b` fetches it
context_window = 16384                  # in tokens; Ollama loads the model with as much
# base_url = "http://localhost:11434"
""",
    "openai_compatible": """\
kind = "openai_compatible"
model = "my-model"
base_url = "http://localhost:8080/v1"
# context_window = 32768                # in tokens, as the server was started
# server = "vllm"                       # or "llama.cpp", "lm_studio": what serves it
# api_key_env = "MY_API_KEY"            # where the server asks for one
# prices = { input = 0.5, output = 1.5 }  # US dollars for a million tokens, where it costs any
# strict_alternation = true             # where it refuses two user messages in a row
""",
    "local": """\
kind = "local"
model = "SmolLM2-135M-Instruct"         # `pod models pull` fetches it; or the path of a GGUF file
""",
    "scripted": """\
kind = "scripted"
script = "answers.jsonl"                # one answer a line
""",
    "replay": """\
kind = "replay"
script = "recording.jsonl"              # a recorded session of requests and answers
""",
}


def starter_manifest(kind: str, name: str) -> str:
    """Return a manifest for a pod called `name` whose model is of provider `kind`.

    The manifest passes every check. Raises ValueError for a name no pod can have, KeyError for a
    kind that is none of PROVIDER_KINDS.
    """
    if not is_pod_name(name):
        raise ValueError(f"a pod's name {WORDS[POD_NAME]}, at most {NAME_LENGTH} of them")

    text = _TEMPLATE.read_text(encoding="utf-8")
    text = text.replace(_PROVIDER, _PROVIDERS[kind]).replace(_NAME, f'name = "{name}"')
    for usual, fitting in _FITTED[kind].items():
        text = text.replace(usual, fitting)

    return text
