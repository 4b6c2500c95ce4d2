"""The model in force and its readings: windows, thresholds, usage."""

from __future__ import annotations

from pod.context.engine import ContextEngine
from pod.context.signature import overrides, update_context_engine_model

from ..bench import Bench
from ..examine import shown
from ..results import Area, Broken, NotApplicable

models = Area("models")
usage = Area("usage")


def _told(bench: Bench, engine: ContextEngine, window: int, model: str, **details: object) -> None:
    bench.call(
        "update_model()",
        update_context_engine_model,
        engine,
        model=model,
        context_length=window,
        **details,
    )


def _needs_update_model(engine: ContextEngine) -> None:
    if not callable(getattr(engine, "update_model", None)):
        raise NotApplicable("it has no update_model")


@models.check("§1.1 context_length, §2.3 item 1")
def _window_is_taken(bench: Bench) -> None:
    """update_model sets context_length, and a trigger that is no negative number."""
    engine = bench.new()
    _needs_update_model(engine)
    for window in (100_000, 8_000, 1_000_000):
        _told(bench, engine, window, "m-1", provider="p")
        if engine.context_length != window:
            raise Broken(
                f"after update_model of {window:,} tokens context_length is "
                f"{shown(engine.context_length)}"
            )

        trigger = engine.threshold_tokens
        if not isinstance(trigger, int) or trigger < 0:
            raise Broken(f"after update_model threshold_tokens is {shown(trigger)}")


@models.check("§1.2 update_model, §2.3 item 5")
def _any_model_can_be_told(bench: Bench) -> None:
    """update_model takes a key that is a callable, an unknown window, and a switch at any time."""
    engine = bench.started()
    _needs_update_model(engine)
    _told(bench, engine, 32_000, "m", base_url="https://e/v1", api_key=lambda: "k", api_mode="x")
    _told(bench, engine, 0, "")
    _told(bench, engine, 64_000, "another/model:free", provider="")
    bench.wants_compaction(engine, 100)


@models.check("§2.3 items 1 to 4")
def _model_thresholds(bench: Bench) -> None:
    """model_thresholds decide the trigger; a model without an entry returns to the usual one."""
    engine = bench.new()
    if overrides(engine, "update_model"):
        raise NotApplicable("its own update_model may set the trigger as it likes")

    usual = engine.threshold_percent
    entries = {"opus": 0.5, "p:opus-4": 0.25}
    bench.call("setting model_thresholds", setattr, engine, "model_thresholds", entries)
    wanted = (("opus", "", 0.5), ("m", "", usual), ("opus-4", "P", 0.25), ("m", "p", usual))
    for model, provider, share in wanted:
        _told(bench, engine, 100_000, model, provider=provider)
        expected = int(100_000 * share)
        if engine.threshold_tokens != expected:
            raise Broken(
                f"for the model {model!r} of {provider!r} the trigger is "
                f"{engine.threshold_tokens:,} tokens, not {expected:,} of 100,000"
            )


@usage.check("§1.2 update_from_response")
def _usage_is_taken(bench: Bench) -> None:
    """update_from_response sets last_prompt_tokens to what was measured."""
    engine = bench.started()
    for prompt in (1_234, 9, 56_789):
        record: dict[str, object] = {
            "prompt_tokens": prompt,
            "completion_tokens": 7,
            "total_tokens": prompt + 7,
            "input_tokens": prompt,
            "output_tokens": 7,
            "cache_read_tokens": 3,
            "cache_write_tokens": 0,
            "reasoning_tokens": 0,
        }
        bench.respond(engine, record)
        if engine.last_prompt_tokens != prompt:
            raise Broken(
                f"of prompt_tokens {prompt:,} last_prompt_tokens became "
                f"{shown(engine.last_prompt_tokens)}"
            )


@usage.check("§1.2 update_from_response")
def _usage_may_be_odd(bench: Bench) -> None:
    """update_from_response takes usage with keys missing, None or unknown, and stays a number."""
    odd: tuple[dict[str, object], ...] = (
        {},
        {"prompt_tokens": None, "completion_tokens": None, "total_tokens": None},
        {"completion_tokens": 5},
        {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        {"prompt_tokens": 10, "prompt_tokens_details": {"cached": None}, "cost": 0.1},
    )
    for record in odd:
        engine = bench.started()
        bench.respond(engine, record)
        reading = engine.last_prompt_tokens
        if not isinstance(reading, int) or reading < 0:
            raise Broken(f"of the usage {shown(record)} last_prompt_tokens became {shown(reading)}")
