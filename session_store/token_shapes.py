"""The shapes of credentials: what a tool's output must not carry into the log, known or not.

Each rule is a fixed prefix and what follows it. A prefix counts only where a token can begin, so
a shape inside a longer word, an id or a base64 image is left alone, and every start of a pattern
consumes the run it looks at: the time is linear in the text.
"""

from __future__ import annotations

import re

from attrs import frozen

_UNSAFE_NAME = re.compile(r"[^A-Za-z0-9_.:-]+")

# What may stand before a token: no word character or hyphen, unless it ends an escape sequence
# (`\n` in JSON, `%20` in an address, a terminal's colour code).
_BEFORE = (
    r"(?<![\w-]{p})",
    r"(?<=\\[nrt]{p})",
    r"(?<=%[0-9A-Fa-f][0-9A-Fa-f]{p})",
    r"(?<=\x1b\[[0-9]m{p})",
    r"(?<=\[[0-9][0-9]m{p})",
    r"(?<=\x1b\[K{p})",
)

_PEM_GAP = r"""(?:[\s"'+,|>:→]|\\[nr]|\d{1,7}+(?=[\t:|→]))*+"""
_PEM_BODY = (
    rf"-----(?:{_PEM_GAP}(?:Version|Comment|Proc-Type|DEK-Info): [^\n\\]{{0,200}}+)*+"
    rf"(?:{_PEM_GAP}[A-Za-z0-9+/=]{{16,}}+)++"
    rf"(?:(?:{_PEM_GAP}[A-Za-z0-9+/=]{{1,64}}+)?+{_PEM_GAP}-----END [A-Z0-9 ]{{0,40}}-----)?+"
)


@frozen
class _Rule:
    """One shape. `needle` is in every text that has it; group `secret`, if any, is replaced."""

    name: str
    needle: str
    pattern: re.Pattern[str]


def marker(name: str) -> str:
    """Return what stands in the place of a secret called `name`."""
    return f"[masked: {_UNSAFE_NAME.sub('_', name)[:64] or 'secret'}]"


def mask_token_shapes(text: str) -> str:
    """Return `text` with each credential replaced by `[masked: <rule name>]`.

    The same object is returned when there is none. Idempotent.
    """
    for rule in _RULES:
        if rule.needle in text:
            text = _mask_rule(rule, text)

    return text


def _mask_rule(rule: _Rule, text: str) -> str:
    shown = marker(rule.name)

    def replacement(match: re.Match[str]) -> str:
        if "secret" not in match.re.groupindex:
            return shown

        whole, (start, end) = match.group(), match.span("secret")
        return whole[: start - match.start()] + shown + whole[end - match.start() :]

    masked, count = rule.pattern.subn(replacement, text)
    return masked if count else text


def _token(name: str, prefix: str, body: str, *, needle: str = "") -> _Rule:
    """Make a rule of a fixed-width `prefix` where a token can begin, and the `body` after it."""
    before = "|".join(check.format(p=prefix) for check in _BEFORE)
    return _Rule(name, needle or prefix, re.compile(f"{prefix}(?:{before}){body}"))


def _field(name: str, needle: str, pattern: str) -> _Rule:
    """Make a rule for a named field, whose group `secret` is its value."""
    return _Rule(name, needle, re.compile(pattern))


_WORD = "[A-Za-z0-9_-]"
_END = "(?![A-Za-z0-9_-])"
# A run of lower-case words with hyphens is a name or a placeholder, not a key.
_NOT_WORDS = "(?=[a-z_-]*+[A-Z0-9])"
_HAS_DIGIT = "(?=[A-Za-z_]*+[0-9])"

_RULES: tuple[_Rule, ...] = (
    _Rule("private-key", " PRIVATE KEY", re.compile(
        rf"-----BEGIN (?:[A-Z0-9]{{1,12}} ){{0,3}}PRIVATE KEY(?: BLOCK)?{_PEM_BODY}")),
    _token("anthropic-key", "sk-ant-", f"{_NOT_WORDS}{_WORD}{{10,}}+"),
    _token("openrouter-key", "sk-or-v1-", "[0-9a-f]{32,}+"),
    _token("openai-key", "sk-", f"(?:proj|svcacct|admin|None)-{_NOT_WORDS}{_WORD}{{20,}}+"),
    _token("secret-key", "sk-", f"(?:[a-z0-9]{{2,10}}-){{0,2}}{_HAS_DIGIT}[A-Za-z0-9_]{{16,}}+"),
    _token("github-token", "gh[pousr]_", "[A-Za-z0-9]{30,}+", needle="gh"),
    _token("github-token", "github_pat_", "[A-Za-z0-9_]{22,}+"),
    _token("gitlab-token", "glpat-", f"{_WORD}{{20,}}+"),
    _token("aws-access-key", "A[KS]IA", f"[A-Z2-7]{{16}}{_END}", needle="IA"),
    _field("aws-secret-key", "ccess", (
        r"(?i:secret_?access_?key)[\"']?[ \t]{0,8}[=:][ \t]{0,8}[\"']?"
        r"(?P<secret>[A-Za-z0-9/+=]{40})(?![A-Za-z0-9/+=])")),
    _field("aws-secret-key", "CCESS", (
        r"SECRET_?ACCESS_?KEY[\"']?[ \t]{0,8}[=:][ \t]{0,8}[\"']?"
        r"(?P<secret>[A-Za-z0-9/+=]{40})(?![A-Za-z0-9/+=])")),
    _token("google-key", "AIza", f"{_WORD}{{35}}{_END}"),
    _token("google-token", r"ya29\.", f"{_WORD}{{20,}}+", needle="ya29."),
    _token("google-client-secret", "GOCSPX-", f"{_WORD}{{28}}{_END}"),
    _token("slack-token", "xox[abeoprs]-", "[A-Za-z0-9-]{10,}+", needle="xox"),
    _token("slack-token", "xapp-", "[0-9]-[A-Za-z0-9-]{10,}+"),
    _field("slack-webhook", "hooks.slack.com", (
        r"hooks\.slack\.com/(?:services|workflows)/(?P<secret>[A-Za-z0-9]{8,12}/[A-Za-z0-9/]{16,}+)")),
    _token("stripe-key", "[rs]k_", "(?:live|test)_[A-Za-z0-9]{16,}+", needle="k_"),
    _token("stripe-webhook", "whsec_", "[A-Za-z0-9+/=]{24,}+"),
    _token("jwt", "eyJ", rf"{_WORD}{{8,}}+\.eyJ{_WORD}{{4,}}+\.{_WORD}{{10,}}+"),
    _token("npm-token", "npm_", f"[A-Za-z0-9]{{36}}{_END}"),
    _token("pypi-token", "pypi-", f"AgE{_WORD}{{40,}}+"),
    _token("huggingface-token", "hf_", "[A-Za-z0-9]{30,}+"),
    _token("groq-key", "gsk_", "[A-Za-z0-9]{40,}+"),
    _token("xai-key", "xai-", "[A-Za-z0-9]{60,}+"),
    _token("perplexity-key", "pplx-", "[A-Za-z0-9]{40,}+"),
    _token("nvidia-key", "nvapi-", f"{_WORD}{{50,}}+"),
    _token("sendgrid-key", r"SG\.", rf"{_WORD}{{16,}}+\.{_WORD}{{16,}}+", needle="SG."),
    _token("docker-token", "dckr_pat_", f"{_WORD}{{20,}}+"),
    _token("age-key", "AGE-SECRET-KEY-1", "[0-9A-Z]{50,}+"),
    _field("azure-key", "AccountKey=", r"AccountKey=(?P<secret>[A-Za-z0-9+/]{80,}+={0,2})"),
    _field("bearer-token", "earer", (
        r"[Bb]earer[ \t]{1,4}(?=[A-Za-z._~+/=-]{0,64}[0-9])(?P<secret>[A-Za-z0-9._~+/=-]{16,}+)")),
    _field("basic-auth", "Basic ", (
        r"(?i:authorization)[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?"
        r"Basic (?P<secret>[A-Za-z0-9+/=]{8,}+)")),
    _field("url-password", "://", (
        r"://[^\s/:@\"'<>?#\[]{0,128}:(?![$<{*]|%[s(])"
        r"(?P<secret>[^\s/@\"'<>?#]{1,256})@(?=[A-Za-z0-9\[])")),
)  # fmt: skip

RULE_NAMES = tuple(sorted({rule.name for rule in _RULES}))
"""The names that `[masked: …]` may show for a shape."""
