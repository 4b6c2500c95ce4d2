"""What takes its time on a served pod: runs and compactions, found again where a link was lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from attrs import define, evolve

from pod.errors import PodBusy, PodError
from pod.protocol import CompactionDone, ErrorInfo, RunEnd
from pod.protocol.methods import Accepted, CompactAnswer
from worker.items import UserMessage, user_message

from .errors import ConnectionLost, RemoteError, RunUnknown
from .feed import Feed
from .link import Link
from .translate import raised, read, result_of, run_params
from .watch import CompactionWatch, RunWatch

if TYPE_CHECKING:
    from pod.runs import RunResult
    from worker.output import NotTheOutput, OutputType

Soon = Callable[[Awaitable[object], str], object]
_FRESH_WITHIN_S = 5.0
"""How long a result waits for the mirror, where the connection is away just then."""
_IN_DOUBT = "the connection was lost before the pod said whether {} was accepted"


@define(eq=False)
class RemoteRuns:
    """Runs and compactions of the pod behind `link`."""

    link: Link
    feed: Feed
    soon: Soon
    """Has something done without anybody waiting for it."""

    # ------------------------------------------------------------------ runs

    async def run(self, message: UserMessage, output: type[Any] | None) -> RunResult:
        """Run a prompt to its end; see `PodClient.run`."""
        if output is None:
            return result_of(await self._to_the_end("run", run_params(message)))

        from worker.output import NotTheOutput, OutputType

        expected = OutputType(output)
        schema = {"output_schema": expected.schema}
        result = result_of(await self._to_the_end("run", run_params(message) | schema))
        if result.outcome != "finished":
            return result

        try:
            return evolve(result, output=expected.parse(result.text))
        except NotTheOutput as problem:
            return await self._repaired(result, expected, problem)

    async def _repaired(
        self, result: RunResult, expected: OutputType, problem: NotTheOutput
    ) -> RunResult:
        """Ask once more for what does not fit the type, which only this side knows whole."""
        from worker.output import NotTheOutput

        request = user_message(expected.repair_request(problem))
        params = run_params(request) | {"output_schema": expected.schema}
        try:
            result = result_of(await self._to_the_end("run", params))
            if result.outcome != "finished":
                return result

            return evolve(result, output=expected.parse(result.text))
        except NotTheOutput as still:
            why = f"also after one repair: {still}"
        except PodBusy:
            why = f"and another run began before it could be repaired: {problem}"

        message = f"the answer does not fit the output type, {why}"
        error = ErrorInfo(code="output_invalid", message=message)
        exception = RemoteError(error.code, message)
        return evolve(result, outcome="error", message=message, error=error, exception=exception)

    async def resume(self) -> RunResult:
        """Go on with a run that stopped; see `PodClient.resume`."""
        return result_of(await self._to_the_end("resume", {}))

    async def _to_the_end(self, method: str, params: dict[str, Any]) -> RunEnd:
        """Have a run accepted and return its end. Cancelled, it cancels the run."""
        watch = RunWatch()
        self.feed.runs.add(watch)
        beginning = asyncio.ensure_future(self._begin(method, params, watch))
        # Whoever was cancelled meanwhile does not hear how it came out.
        beginning.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            await asyncio.shield(beginning)
            end = await watch.ended()
        except asyncio.CancelledError:
            self.soon(self._cancel_once_begun(beginning, watch), "cancel a run")
            raise
        except PodError:
            self.feed.runs.discard(watch)
            raise

        self.feed.runs.discard(watch)
        await self.settled()
        return end

    async def _begin(self, method: str, params: dict[str, Any], watch: RunWatch) -> None:
        """Return once the run is accepted, exactly once however often the connection is lost."""
        is_again = False
        while True:
            connection = await self.link.ready()
            try:
                answer = read(Accepted, await connection.send(method, params))
            except ConnectionLost as error:
                if method != "run":
                    message = _IN_DOUBT.format("it")
                    hint = "look at its status and history before you ask again"
                    raise RunUnknown(message, hint=hint) from error

                is_again = True  # the pod knows the message by its uid, and runs it once
            except RemoteError as error:
                if is_again and error.code == "known_message":
                    hint = "it can be resumed; the history has what was done"
                    message = "the pod was restarted while the run was going on"
                    raise RunUnknown(message, hint=hint) from error

                raise raised(error) from error
            else:
                watch.accept(connection.hello.launch, answer.seq)
                return

    async def _cancel_once_begun(self, beginning: asyncio.Future[None], watch: RunWatch) -> None:
        """Cancel a run that nobody waits for any more; another one's is left alone."""
        try:
            # Refused, or in doubt: then there is nothing of ours to cancel.
            with suppress(PodError):
                await beginning
                connection = self.link.now()
                if not watch.is_over and connection is not None:
                    await connection.send("cancel", {})
        finally:
            self.feed.runs.discard(watch)

    # ------------------------------------------------------------------ compactions

    async def compact(self, focus: str | None) -> CompactionDone | None:
        """Compact now; see `PodClient.compact`."""
        watch = CompactionWatch()
        self.feed.compactions.add(watch)
        try:
            connection = await self.link.ready()
            params = {"focus": focus} if focus is not None else {}
            try:
                answer = read(CompactAnswer, await connection.send("compact", params))
                done = answer.done
            except ConnectionLost as lost:
                done = await self._found_again(watch, lost)
            except RemoteError as error:
                raise _compaction_error(error, watch) from error
        finally:
            self.feed.compactions.discard(watch)

        await self.settled()
        return done

    async def _found_again(
        self, watch: CompactionWatch, lost: ConnectionLost
    ) -> CompactionDone | None:
        """Return how a compaction ended whose answer was lost, by the events that told of it."""
        while watch.done is None and watch.failed is None:
            connection = await self.link.ready()
            try:
                await connection.send("idle", {})
                await self.caught_up()
            except ConnectionLost:
                continue
            except RemoteError as error:
                raise raised(error) from error

            break

        if watch.failed is not None:
            raise _compaction_error(RemoteError("compaction_failed", watch.failed.message), watch)

        if watch.done is None:
            message = _IN_DOUBT.format("the compaction")
            hint = "look at its status and session before you ask again"
            raise ConnectionLost(message, hint=hint) from lost

        return watch.done

    # ------------------------------------------------------------------ waiting

    async def settled(self) -> None:
        """Have the mirror know what was just done; for a while, where the pod is away."""
        # What was done is done, whether or not it can be seen from here just now.
        with suppress(PodError, TimeoutError):
            async with asyncio.timeout(_FRESH_WITHIN_S):
                await self.feed.fresh()

    async def caught_up(self) -> None:
        """Return once every event was delivered that the pod has published by now."""
        connection = await self.link.ready()
        told = await connection.send("ping", {})
        launch, seq = told.get("launch"), told.get("seq", 0)
        while not connection.is_lost:
            at = self.link.cursor.position
            if at is not None and at.launch == launch and at.seq > seq:
                return

            await asyncio.sleep(0.005)

        raise ConnectionLost(connection.lost_by)


def _compaction_error(error: RemoteError, watch: CompactionWatch) -> Exception:
    """Return what an in-process pod raises: the reason is in the event that told of it."""
    if error.code != "compaction_failed":
        return raised(error)

    from pod.compaction.plan import CompactionError, FailureReason

    reason = watch.failed.reason if watch.failed is not None else "engine_error"
    return CompactionError(cast("FailureReason", reason), error.message)
