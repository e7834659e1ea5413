"""The conductor: plays a scenario from the first send to the verdict.

Theory of operation
1. The applications send, each through a paired client; plain receivers take from the primary all the while;
   the faults of the scenario come and go at their times. A sampler looks at everything four times a second.
2. When all has been sent, the conductor waits until the faults are over and every entity is healthy again, or
   for the moment that the scenario names. Then the engine drains the backlog, again and again as long as
   messages wait for their entity and the scenario has patience.
3. The clients are closed, so that their records and ledgers are whole, and the receivers get time for what
   is left. Then all faults end, what still lies in queues is peeked, and the audit judges every message.
4. Whatever happens in between, everything that was begun is ended.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pairbus.broker.faults.plan import CLEAR, FaultStep
from pairbus.clock import SystemClock
from pairbus.cost.bill import BillTerms
from pairbus.cost.sheet import PriceSheet
from pairbus.plumbing.tasks import cancel_all
from pairbus.plumbing.wording import counted

from .applications import Applications
from .audit import audit
from .bill import sum_up_cost
from .checks import Evidence
from .engines import PumpEngine
from .picture import Display, DrillPicture
from .receiver import Receiver
from .recorder import Recorder
from .remains import peek_backlog, peek_primary, read_redirects, read_spool
from .result import Cost, DrainRun, DrillResult, FaultSpan
from .scenario import EntityPlan, Scenario
from .stage import DrillStage, describe_fault
from .writeup import write_up

if TYPE_CHECKING:
    from .spark_engine import SparkEngine

    #: Drains, verifies and bills.
    Engine = PumpEngine | SparkEngine

_SAMPLE_PAUSE = 0.25
_LOOK_PAUSE = 0.1
# How much longer than the scenario says the applications may take to send, and to become healthy again.
_GRACE = 30.0
# How long receivers may take for what is left, and how long the primary must have been empty by then.
_COLLECT_LIMIT = 60.0
_EMPTY_SPELL = 1.5
# Between two runs of the syphon while messages wait.
_DRAIN_PAUSE = 1.0
_MOST_RECEIVERS = 16
_ROAMING_RECEIVERS = 4
_FOR_EVER = float("inf")


class Conductor:
    """Plays one scenario, once, on a stage that is set."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        stage: DrillStage,
        engine: Engine,
        make_applications: Callable[[Recorder], Applications],
        state: Path,
        sheet: PriceSheet,
        display: Display,
        version: str,
    ) -> None:
        self._scenario = scenario
        self._stage = stage
        self._engine = engine
        self._state = state
        self._sheet = sheet
        self._display = display
        self._version = version
        self._clock = SystemClock()
        self._recorder = Recorder(scenario.entities, self._clock)
        self._recorder.on_event = display.event
        self._applications = make_applications(self._recorder)
        self._player: asyncio.Task[None] | None = None
        self._sending_since = 0.0
        self._runs: list[DrainRun] = []
        # How far the drain is.
        self._total: int | None = None
        self._moved = 0
        self._rate = 0.0
        self._message = ""
        self._notes: list[str] = []

    async def run(self) -> DrillResult:
        self._display.begin(self._scenario.title, self._scenario.story)
        self._enter("healthy")
        self._engine.start()
        receivers = self._make_receivers()
        tasks = [asyncio.create_task(one.run()) for one in receivers]
        tasks.append(asyncio.create_task(self._sample()))
        try:
            await self._perform()
            for receiver in receivers:
                receiver.stop()
            await asyncio.wait(tasks[: len(receivers)], timeout=_GRACE)
            result = await self._judge()
        finally:
            if self._player is not None:
                tasks.append(self._player)
            # The SDK may swallow a cancellation; one that is stopped ends all the same.
            for receiver in receivers:
                receiver.stop()
            await cancel_all(*tasks)
            await self._applications.close()
            await self._engine.close()
        self._display.end(result)
        return result

    async def _perform(self) -> None:
        scenario = self._scenario
        await self._applications.start()
        self._sending_since = self._recorder.now()
        self._player = asyncio.create_task(self._play())
        await self._send()
        await self._settle()
        await self._applications.retire()
        await self._drain()
        if scenario.syphon.at is not None:
            await self._wait(self._applications.is_settled, _GRACE)
        await self._applications.close()
        await self._collect()

    async def _send(self) -> None:
        limit = self._scenario.send_for + self._last_fault_end() + _GRACE
        try:
            async with asyncio.timeout(limit):
                await self._applications.run()
        except TimeoutError:
            self._notes.append(f"Not all was sent within {limit:.0f} s, and the rest was left out.")
        else:
            self._tell("all is sent")

    # -- faults

    async def _play(self) -> None:
        """Break things as the scenario says, and when."""
        for step in self._scenario.faults.steps:
            await self._sleep_until(step.at)
            if step.at > 0:  # an outage, not a start in one, however slowly this machine begins
                await self._wait(self._applications.have_reached_primary, _GRACE)
            begins = self._recorder.now()  # first: clients notice it before we are told that it is set
            duration = await self._stage.take_step(step)
            self._note_step(step, duration, begins)

    def _note_step(self, step: FaultStep, duration: float | None, begins: float) -> None:
        now = self._recorder.now()
        if step.kind == CLEAR:
            self._cut_faults(now, namespace=step.namespace, entity=step.entity)
            self._recorder.tell(f"healed: {step.entity or step.namespace}")
            return
        span = FaultSpan(
            namespace=step.namespace,
            kind=step.kind,
            entity=step.entity,
            begins=begins,
            ends=_FOR_EVER if duration is None else now + duration,
        )
        self._recorder.faults.append(span)
        lasts = "until it is healed" if duration is None else f"for {duration:.1f} s"
        self._recorder.tell(f"broken: {describe_fault(span)}, {lasts}")

    def _cut_faults(self, now: float, *, namespace: str | None = None, entity: str | None = None) -> None:
        self._recorder.faults = [
            dataclasses.replace(span, ends=min(span.ends, now))
            if namespace in (None, span.namespace) and entity in (None, span.entity)
            else span
            for span in self._recorder.faults
        ]

    def _active_faults(self) -> list[FaultSpan]:
        now = self._recorder.now()
        return [span for span in self._recorder.faults if span.begins <= now < span.ends]

    def _last_fault_end(self) -> float:
        return max((step.at + (step.duration or 0.0) for step in self._scenario.faults.steps), default=0.0)

    # -- one after the other

    async def _settle(self) -> None:
        """Wait until all is well again, or for the moment at which the syphon is to begin."""
        at = self._scenario.syphon.at
        if at is not None:
            await self._sleep_until(at)
            return
        over = self._sending_since + self._last_fault_end()
        limit = max(0.0, over - self._recorder.now()) + _GRACE
        self._message = "waiting until all entities are healthy"

        def is_well() -> bool:
            ended = all(span.ends == _FOR_EVER for span in self._active_faults())
            return self._is_played() and ended and self._applications.is_settled()

        if not await self._wait(is_well, limit):
            self._notes.append(f"{limit:.0f} s after the last send not all was well; the drain began anyway")

    async def _drain(self) -> None:
        self._enter("drain")
        if not await self._stage.has_backlog():
            self._notes.append("There is no backlog: no client of the application has paired.")
            return
        self._message = f"waiting for {self._engine.name} to be ready"
        await self._engine.wait_ready()
        self._message = f"draining with {self._engine.name}"
        self._total = await self._stage.backlog_depth()
        deadline = self._recorder.now() + self._scenario.syphon.patience
        while True:
            run = await self._engine.drain()
            self._runs.append(run)
            self._moved += run.moved
            self._tell(
                f"the syphon moved {counted(run.moved, 'message', 'messages')} in {run.seconds:.1f} s"
                + (f"; {run.waiting:,} wait for their entity" if run.waiting else "")
            )
            if len(self._runs) == self._scenario.syphon.heal_after:
                await self._heal()
                deadline = self._recorder.now() + self._scenario.syphon.patience
            if not run.waiting or self._recorder.now() >= deadline:
                return
            await asyncio.sleep(_DRAIN_PAUSE)

    async def _heal(self) -> None:
        """End all faults that there still are."""
        await self._stage.heal()
        if self._active_faults():
            self._recorder.tell("healed: " + ", ".join(map(describe_fault, self._active_faults())))
        self._cut_faults(self._recorder.now())

    async def _collect(self) -> None:
        """Let the receivers take what is left on the primary."""
        self._message = "receiving the rest"
        deadline = self._recorder.now() + _COLLECT_LIMIT
        empty_since: float | None = None
        while self._recorder.now() < deadline:
            if self._all_arrived():
                return
            now = self._recorder.now()
            if await self._stage.primary_depth():
                empty_since = None
            elif empty_since is None:
                empty_since = now
            elif now - empty_since > _EMPTY_SPELL:
                return
            await asyncio.sleep(_LOOK_PAUSE)

    def _all_arrived(self) -> bool:
        return all(
            self._recorder.has_arrived(one.path, one.message_id)
            for one in self._applications.sent()
            if one.outcome == "returned"
        )

    async def _sleep_until(self, moment: float) -> None:
        """Sleep until so long after the first send."""
        await asyncio.sleep(max(0.0, self._sending_since + moment - self._recorder.now()))

    def _is_played(self) -> bool:
        """Whether all faults of the scenario have begun."""
        if self._player is None or not self._player.done():
            return False
        self._player.result()  # what went wrong with it is told here
        return True

    async def _wait(self, is_so: Callable[[], bool], limit: float) -> bool:
        deadline = self._recorder.now() + limit
        while not is_so():
            if self._recorder.now() >= deadline:
                return False
            await asyncio.sleep(_LOOK_PAUSE)
        return True

    # -- looking on

    def _make_receivers(self) -> list[Receiver]:
        return [
            Receiver(
                self._stage.primary.connection_string,
                plan,
                node,
                session=session,
                on_arrival=self._recorder.note_arrival,
            )
            for plan in self._scenario.entities
            for node in plan.nodes
            for session in self._sessions(plan)
        ]

    def _sessions(self, plan: EntityPlan) -> Sequence[str | None]:
        """A receiver for each session, or, where they are many or not known, some for any of them."""
        if not plan.sessions:
            return [None]
        names = plan.session_names(self._scenario.clients)
        if not self._applications.names_sessions or len(names) > _MOST_RECEIVERS:
            return [None] * _ROAMING_RECEIVERS
        return names

    async def _sample(self) -> None:
        while True:
            began = self._recorder.now()
            await self._look()
            await asyncio.sleep(_SAMPLE_PAUSE)
            self._recorder.note_lateness(self._recorder.now() - began - _SAMPLE_PAUSE)

    async def _look(self) -> None:
        if self._recorder.phase not in ("drain", "verdict"):
            is_broken, was = bool(self._active_faults()), bool(self._recorder.faults)
            self._enter("outage" if is_broken else "recovery" if was else "healthy")
        backlog = await self._stage.backlog_depth()
        moved = self._moved + self._engine.moved
        before = self._recorder.samples[-1] if self._recorder.samples else None
        sample = self._recorder.take_sample(
            moved=moved, backlog=backlog, spooled=self._applications.spooled()
        )
        if before is not None and sample.at > before.at:
            measured = max(0, sample.moved - before.moved) / (sample.at - before.at)
            self._rate = 0.5 * self._rate + 0.5 * measured
        self._display.update(
            DrillPicture(
                at=sample.at,
                phase=self._recorder.phase,
                faults=tuple(map(describe_fault, self._active_faults())),
                entities=self._recorder.draw_entities(),
                backlog=sample.backlog,
                spooled=sample.spooled,
                drain_moved=sample.moved,
                drain_total=self._total,
                drain_rate=self._rate,
                message=self._message,
            )
        )

    def _enter(self, phase: str) -> None:
        if self._recorder.enter_phase(phase):
            self._display.phase(phase, self._recorder.now())

    def _tell(self, text: str) -> None:
        self._message = text
        self._recorder.tell(text)

    # -- judging

    async def _judge(self) -> DrillResult:
        self._enter("verdict")
        self._message = "judging by message id"
        await self._heal()
        await self._look()
        evidence = await self._gather_evidence()
        self._message = "making the bill"
        cost = await self._bill()
        self._recorder.finish()
        return write_up(
            evidence,
            cost,
            engine=self._engine.name,
            version=self._version,
            checks=self._applications.checks(),
            notes=[*self._applications.notes(), *self._notes],
        )

    async def _gather_evidence(self) -> Evidence:
        redirects = await asyncio.to_thread(read_redirects, self._state)
        stage = self._stage
        backlog = await peek_backlog(stage.pair, stage.backlog_queues, now=self._clock.now())
        primary = await peek_primary(stage.pair, self._scenario.entities)
        spooled = await asyncio.to_thread(read_spool, self._state)
        resting = [*backlog, *primary, *spooled]
        sent = self._applications.account(resting, redirects)
        found = audit(
            sent,
            self._recorder.arrivals,
            resting,
            nodes={plan.path: plan.nodes for plan in self._scenario.entities},
            queues=redirects,
            ordered_across=self._scenario.options.ordering == "session",
        )
        self._message = "checking the records"
        return Evidence(
            scenario=self._scenario,
            recorder=self._recorder,
            audit=found,
            runs=self._runs,
            backlog=backlog,
            spooled=spooled,
            redirected=frozenset(redirects),
            records=await self._engine.verify(),
            knows_states=self._applications.tells_states,
            knows_order=any(one.session is not None for one in sent),
        )

    async def _bill(self) -> Cost:
        # A message to a topic is received once by each subscription.
        copies = {one.path.lower(): len(one.nodes) for one in self._scenario.entities}
        terms = BillTerms(copies=copies)
        return sum_up_cost(await self._engine.bill(self._sheet, terms, now=self._clock.now()))
