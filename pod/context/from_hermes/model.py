"""Which model answers, and which stand in: Hermes's `model` and its like as `[provider]`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from attrs import define, field, frozen

from .providers import (
    ALIASES,
    DEFAULT_LOCAL,
    PROVIDERS,
    SIGNED_IN,
    Known,
    by_address,
    by_key,
    host_of,
    key_variable,
    native_model,
    provider_id,
)
from .read import HermesConfig, Path_

_REFERENCE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}")
_THEIR_WORDS = {"model": "default", "context_window": "context_length", "api_key_env": "key_env"}
_WORD = re.compile(r"[a-z][a-z_.:-]{0,30}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SUMMARIES = ("auxiliary", "compression")


@frozen
class ModelSection:
    """One model, as the keys of `[provider]`, each with its comment; `notes` are for people."""

    keys: Mapping[str, tuple[object, str]]
    notes: tuple[str, ...] = ()

    @property
    def values(self) -> dict[str, object]:
        """The keys without their comments."""
        return {key: value for key, (value, _) in self.keys.items()}


@define
class ModelReader:
    """Makes sections of what a Hermes configuration says of models."""

    config: HermesConfig
    env: Mapping[str, str]
    _notes: list[str] = field(factory=list)

    def main(self) -> ModelSection | None:
        """Return the model that answers; None where it cannot be told, which is a mistake then."""
        config = self.config
        given = config.raw("model")
        if isinstance(given, str):
            return self._section(("model",), model=given.strip(), given={})

        told = len(config.mistakes)
        table = config.table("model")
        named = config.text("model", "default") or config.text("model", "model")
        if not named:
            if len(config.mistakes) == told:
                config.wrong(("model", "default"), "missing: which model is meant")

            # What else is wrong with it is told all the same.
            self._section(("model",), model="unknown", given=table)
            return None

        return self._section(("model",), model=named, given=table)

    def fallbacks(self) -> list[ModelSection]:
        """Return the models that stand in, in order."""
        found = []
        for path in (("fallback_providers",), ("fallback_model",)):
            for row in self.config.rows(*path):
                given = row if isinstance(row, Mapping) else {"provider": row}
                model = str(given.get("model") or given.get("default") or "").strip()
                if not model:
                    self.config.wrong(path, "has one that names no model")
                    continue

                section = self._section(path, model=model, given=given)
                if section is not None:
                    found.append(section)

        return found

    def summaries(self, main: ModelSection) -> ModelSection | None:
        """Return the model that writes summaries, where another one is named for it.

        Of the provider of `main`, where none is named beside it.
        """
        path = _SUMMARIES
        table = self.config.table(*path)
        model = self.config.text(*path, "model")
        provider = provider_id(self.config.text(*path, "provider") or "auto")
        if not model:
            return None

        if provider in {"auto", "custom"} and not self.config.text(*path, "base_url"):
            kind = str(main.values["kind"])
            keys = {key: value for key, value in main.keys.items() if key != "context_window"}
            return ModelSection({**keys, "model": (native_model(kind, model), "")})

        return self._section(path, model=model, given=table)

    # ------------------------------------------------------------------ one model

    def _section(self, path: Path_, *, model: str, given: Mapping[str, Any]) -> ModelSection | None:
        self._notes = []
        for key in ("provider", "base_url", "api_key", "key_env", "key_cmd", "context_length"):
            self.config.raw(*path, key)  # It is used, whichever way the row was found.

        named = provider_id(str(given.get("provider") or "auto"))
        row = self._named_row(named)
        if row is not None:
            given = {**row, **{k: v for k, v in given.items() if v not in (None, "")}}
            named = "custom"

        base_url = self._address(path, str(given.get("base_url") or given.get("url") or ""))
        name = self._provider(path, named, base_url)
        if name is None:
            return None

        known = PROVIDERS[name]
        known = self._as_spoken(known, str(given.get("api_mode") or ""))
        keys: dict[str, tuple[object, str]] = {"kind": (known.kind, self._of(named, name))}
        keys["model"] = self._model(known, model)
        keys |= self._where(known, name, base_url)
        keys |= self._key(path, known, given)
        window = self._window(path, given)
        if window:
            keys["context_window"] = (window, "")

        section = ModelSection(keys, tuple(self._notes))
        self._check(path, section)
        return section

    def _check(self, path: Path_, section: ModelSection) -> None:
        """Note what no manifest may have as a provider; an address with a variable is let be."""
        from pydantic import ValidationError

        from manifests import FallbackProvider

        values = section.values
        if "${" in str(values.get("base_url", "")):
            values["base_url"] = "http://localhost"

        try:
            FallbackProvider.model_validate(values)
        except ValidationError as error:
            for detail in error.errors(include_url=False, include_input=False):
                key = _THEIR_WORDS.get(str(detail["loc"][0]), str(detail["loc"][0]))
                self.config.wrong((*path, key), detail["msg"])

    def _named_row(self, name: str) -> Mapping[str, Any] | None:
        """Return what the file itself says of a provider of this name."""
        if name in PROVIDERS and name != "custom":
            row = self.config.table("providers").get(name)
            return row if isinstance(row, Mapping) and row.get("base_url") else None

        bare = name.removeprefix("custom:")
        for key, row in self.config.table("providers").items():
            if str(key).lower() == bare and isinstance(row, Mapping):
                return row

        for row in self.config.rows("custom_providers"):
            if isinstance(row, Mapping) and str(row.get("name", "")).lower() == bare:
                return row

        return None

    def _provider(self, path: Path_, named: str, base_url: str) -> str | None:
        """Return the provider that is meant, or note why there is none that could be."""
        if named in SIGNED_IN and not base_url:
            self.config.wrong(
                (*path, "provider"),
                f"{named!r} {SIGNED_IN[named]}, which no kind of provider here does; "
                "give another with --provider and its model with --model",
            )
            return None

        if named in PROVIDERS and named not in {"auto", "custom"}:
            return named

        if base_url:
            return by_address(base_url) or "custom"

        if named == "auto":
            found = by_key(self.env) or "openrouter"
            self._notes.append(
                f"Hermes chooses a provider by the keys that it finds; taken here: {found}"
            )
            return found

        # What is no plain word may be a key that has slipped, and is not repeated.
        shown = f"{named!r} " if _WORD.fullmatch(named) else ""
        near = get_close_matches(named, [*PROVIDERS, *ALIASES], 1, 0.75)
        meant = f"; did you mean {near[0]}?" if near else ""
        self.config.wrong(
            (*path, "provider"),
            f"{shown}is no provider that is known here, and has no base_url{meant}",
        )
        return None

    def _as_spoken(self, known: Known, api_mode: str) -> Known:
        kinds = {"anthropic_messages": "anthropic", "codex_responses": "openai_responses"}
        if api_mode not in kinds or known.kind not in {"openai", "openai_compatible"}:
            return known

        return Known(kinds[api_mode], known.base_url, known.keys)

    def _of(self, named: str, name: str) -> str:
        return "" if named in {name, "custom", "auto"} else f"Hermes: {named}"

    def _model(self, known: Known, model: str) -> tuple[object, str]:
        native = native_model(known.kind, model)
        return native, "" if native == model else f"Hermes: {model}"

    def _where(self, known: Known, name: str, base_url: str) -> dict[str, tuple[object, str]]:
        found: dict[str, tuple[object, str]] = {}
        is_own = known.base_url is None and by_address(base_url) == name
        address = base_url if base_url and not is_own else known.base_url
        if address is None and known.kind == "openai_compatible":
            address = DEFAULT_LOCAL
            self._notes.append(f"no base_url was given: {address} is only a guess")

        if address is not None:
            found["base_url"] = (_spelled(known.kind, address), "")
        if known.server is not None:
            found["server"] = (known.server, "")

        return found

    def _address(self, path: Path_, given: str) -> str:
        address = _REFERENCE.sub(r"${\1}", given.strip())
        if address and "${" not in address:
            at_sign = address.partition("://")[2].partition("/")[0].rpartition("@")
            if at_sign[1]:
                self._notes.append(
                    f"{'.'.join(path)}.base_url carried a name or password, which was not copied"
                )
                address = address.replace(f"{at_sign[0]}@", "", 1)

            if not host_of(address):
                self.config.wrong((*path, "base_url"), "is no address: https://host/path")
                return ""

        return address

    def _window(self, path: Path_, given: Mapping[str, Any]) -> int | None:
        value = given.get("context_length") or given.get("context_window")
        if value is None:
            return None

        try:
            window = int(str(value).replace("_", ""))
        except ValueError:
            window = 0

        if window < 1:
            self.config.wrong((*path, "context_length"), "must be a whole number of tokens")
            return None

        return window

    # ------------------------------------------------------------------ its key

    def _key(
        self, path: Path_, known: Known, given: Mapping[str, Any]
    ) -> dict[str, tuple[object, str]]:
        """Return where the key is found; the key itself never comes along."""
        command = str(given.get("key_cmd") or "").strip()
        if command:
            return {"api_key_command": (command, "")}

        usual = key_variable(known, self.env)
        secret = str(given.get("api_key") or "").strip()
        reference = _REFERENCE.fullmatch(secret)
        named = str(given.get("key_env") or given.get("api_key_env") or "").strip()
        variable = reference.group(1) if reference else named or usual
        if variable is not None and not _VARIABLE.fullmatch(variable):
            variable = usual  # Somebody has put the key where its variable's name belongs.
            secret = secret or named

        if secret and not reference:
            variable = variable or "HERMES_API_KEY"
            where = ".".join((*path, "api_key"))
            self._notes.append(
                f"the key in {where} was not copied: put it into the variable {variable}, or into "
                "a file and name that as api_key_file"
            )

        return {"api_key_env": (variable, "")} if variable else {}


def place_of(table: str, key: str) -> Path_ | None:
    """Return where Hermes has what a manifest has as this key of a model, None for another's."""
    sections: dict[str, Path_] = {"provider": ("model",), "compaction.provider": _SUMMARIES}
    found = sections.get(table)
    return None if found is None else (*found, _THEIR_WORDS.get(key, key))


def _spelled(kind: str, address: str) -> str:
    """Return an address as the kind wants it: Hermes's for Claude's API lack the version."""
    bare = address.rstrip("/")
    for endpoint in ("/chat/completions", "/messages", "/responses"):
        bare = bare.removesuffix(endpoint)

    if kind == "anthropic" and not re.search(r"/v\d+$", bare):
        return f"{bare}/v1"

    return bare
