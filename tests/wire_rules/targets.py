"""Every scheme, as its provider's models and servers are spoken to."""

from __future__ import annotations

from attrs import frozen

from tests.wire_rules.checker import check
from tests.wire_rules.openai_chat_rules import Variant
from worker.llm.scheme import Encoder, Scheme
from worker.llm.schemes.anthropic.scheme import AnthropicScheme
from worker.llm.schemes.chat.quirks import ChatQuirks
from worker.llm.schemes.chat.scheme import OpenAiChatScheme
from worker.llm.schemes.chat.servers import MISTRAL, MOONSHOT, NAMED, OPENAI, SERVERS
from worker.llm.schemes.gemini.scheme import GeminiScheme
from worker.llm.schemes.ollama.scheme import OllamaScheme
from worker.llm.schemes.responses.scheme import OpenAiResponsesScheme


@frozen
class Target:
    """A scheme, and who it speaks to."""

    scheme: Scheme
    provider: str
    model: str
    variant: Variant | None = None

    def encoder(self) -> Encoder:
        return self.scheme.encoder(self.provider, self.model)

    def check(self, body: bytes) -> dict[str, object]:
        headers = {"content-type": "application/json", **self.scheme.headers("test-key")}
        path = self.scheme.path(self.model)
        return check(path, body, headers, variant=self.variant)


def _chat(quirks: ChatQuirks, model: str, variant: Variant = "compatible") -> Target:
    provider = "openai" if variant == "official" else "openai_compatible"
    return Target(OpenAiChatScheme(quirks), provider, model, variant)


CLAUDES = ("3-7-sonnet-20250219", "sonnet-4-5", "opus-4-6", "opus-4-8", "sonnet-5", "sonnet-5-5")
TARGETS = {
    **{f"claude-{m}": Target(AnthropicScheme(), "anthropic", f"claude-{m}") for m in CLAUDES},
    "OpenAI, gpt-4.1": _chat(OPENAI, "gpt-4.1", "official"),
    "OpenAI, gpt-5.4": _chat(OPENAI, "gpt-5.4", "official"),
    "strict alternation": _chat(ChatQuirks(strict_alternation=True), "gemma-3", "strict"),
    "Mistral": _chat(MISTRAL, "magistral-medium", "mistral"),
    **{
        f"{hosts[0]}": _chat(quirks, "deepseek-reasoner")
        for hosts, quirks in SERVERS
        if quirks not in (OPENAI, MISTRAL)
    },
    "kimi-k2.5": _chat(MOONSHOT, "kimi-k2.5"),
    **{name: _chat(quirks, "deepseek-reasoner") for name, quirks in NAMED.items()},
    "Responses, gpt-4.1": Target(OpenAiResponsesScheme(), "openai_responses", "gpt-4.1"),
    "Responses, gpt-5.4": Target(OpenAiResponsesScheme(), "openai_responses", "gpt-5.4"),
    "gemini-2.5-flash": Target(GeminiScheme(), "gemini", "gemini-2.5-flash"),
    "gemini-3-pro": Target(GeminiScheme(), "gemini", "gemini-3-pro-preview"),
    "ollama": Target(OllamaScheme(), "ollama", "qwen3"),
    "ollama, gpt-oss": Target(OllamaScheme(context_window=8192), "ollama", "gpt-oss:20b"),
}
