"""The grammars of names in a manifest, and what each is called when it is not met."""

from __future__ import annotations

import re

NAME_LENGTH = 48
"""Keeps `run/<name>.sock` well under the 108 bytes a socket's path may have."""

POD_NAME = r"^[a-z0-9_-]+$"
PLAIN_NAME = r"^[A-Za-z0-9_-]+$"
ENGINE_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"
ENTRY_POINT = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$"

WORDS = {
    POD_NAME: 'must be made of a-z, 0-9, "-" and "_" only',
    PLAIN_NAME: 'must be made of letters, digits, "-" and "_" only',
    ENGINE_NAME: 'must be a plain name: letters, digits, "-", "_" and ".", no "/"',
    ENTRY_POINT: 'must name a Python object as "package.module:object"',
}
"""What to say for a value that does not match."""

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# The shapes in which common providers hand out keys; others are caught by where they stand.
SECRET_SHAPE = re.compile(
    r"(?:sk|pk|rk|xai|gsk|tgp|pplx)[-_][A-Za-z0-9_-]{8,}|AIza[A-Za-z0-9_-]{20,}"
    r"|(?:hf|gh[opsu]|glpat|xox[abp])[_-][A-Za-z0-9_-]{16,}|github_pat_\w{16,}|AKIA[A-Z0-9]{12,}"
    r"|Bearer\s+\S{8,}|://[^/@\s]+:[^/@\s]+@"
)

_SECRET_KEY = re.compile(
    r"(?:^|[_.-])(?:api[_-]?key|apikey|key|token|secret|password|passwd|credentials?|authorization)"
    r"(?:$|[_.-])",
    re.IGNORECASE,
)


def is_pod_name(text: str) -> bool:
    """Tell whether `text` may name a pod."""
    return len(text) <= NAME_LENGTH and re.fullmatch(r"[a-z0-9_-]+", text) is not None


def suggested_pod_name(text: str) -> str:
    """Return the nearest valid pod name to `text`: lower case, the rest as single dashes."""
    return re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-")[:NAME_LENGTH]


def names_a_secret(key: str) -> bool:
    """Tell whether values under `key` must not be shown. Counts (`max_tokens`) are no secrets."""
    return _SECRET_KEY.search(key) is not None
