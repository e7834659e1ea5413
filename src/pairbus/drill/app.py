"""The user's own application in a drill: docs/drill.md says what it finds in its environment, and tells.

If it names no id, every message that either namespace took counts as sent; then the drill cannot know of one
that neither of them has. The order of its lines is the order of its sends, by which that within a session is
judged.
"""

import asyncio
import os
import shlex
import shutil
import signal
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pairbus.broker.faults.plan import CLEAR
from pairbus.client.state.directory import status_dir
from pairbus.client.state.status_file import read_status_files
from pairbus.errors import ConfigurationError
from pairbus.options import EntityState, StateChange
from pairbus.pairing.names import path_key
from pairbus.plumbing.tasks import cancel_all

from .applications import Applications, Equipment
from .engines import PRIMARY_ENV, SECONDARY_ENV
from .messages import Resting, SendOutcome, SentMessage
from .remains import read_redirects
from .result import Check
from .scenario import PRIMARY

STATE_ENV = "PAIRBUS_DRILL_STATE"
_WORDS: Mapping[str, SendOutcome] = {"sent": "returned", "refused": "raised"}
# An interpreter, its imports and the first connection, on a busy machine.
_START_LIMIT = 30.0
# How long it may take to end when it is asked to.
_END_GRACE = 10.0
_LOOK_PAUSE = 0.2
_KEPT_LINES = 20
_LONGEST_LINE = 1024 * 1024


def _parse_command(command: str) -> list[str]:
    try:
        arguments = shlex.split(command)
    except ValueError as error:
        raise ConfigurationError(f"--app {command!r}: {error}") from None
    if not arguments:
        raise ConfigurationError("--app needs a command, such as 'python shop.py'")
    return arguments


def check_command(command: str) -> None:
    """Refuse a command whose program is not there; before the stage is set, which takes seconds."""
    program = _parse_command(command)[0]
    if shutil.which(program) is None:
        raise ConfigurationError(
            f"--app {program}: there is no such program, or it may not be run; name one on the path, "
            "or give its path"
        )


def parse_line(line: str) -> tuple[str, str | None, SendOutcome] | None:
    """The id, the path if it is given, and the outcome; None for a line that tells of none."""
    words = line.split()
    if len(words) not in (2, 3) or words[0] not in _WORDS:
        return None
    return words[1], words[2] if len(words) == 3 else None, _WORDS[words[0]]


@dataclass(slots=True)
class _Client:
    """What a client of the application was last seen to be in."""

    states: dict[str, EntityState] = field(default_factory=dict)
    sent: dict[str, dict[str, int]] = field(default_factory=dict)
    pings: dict[str, int] = field(default_factory=dict)
    spooled: int = 0


def _signal_group(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """To the application and all its children: its session is its own."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


class App(Applications):
    """Runs the command, and listens to what it says."""

    names_sessions = False

    def __init__(self, command: str, given: Equipment) -> None:
        super().__init__(given)
        self._arguments = _parse_command(command)
        told = {PRIMARY_ENV: given.primary, SECONDARY_ENV: given.secondary, STATE_ENV: str(given.state)}
        self._environment = {**os.environ, **told}
        self._state = given.state
        self._process: asyncio.subprocess.Process | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._clients: dict[int, _Client] = {}
        self._told: deque[str] = deque(maxlen=_KEPT_LINES)
        self._was_asked = False
        self._was_killed = False
        self._is_over = False
        #: Whether it keeps its state where the drill can see it.
        self.tells_states = False

    # -- life

    async def start(self) -> None:
        """Start it, and wait until it says that it has sent something, or has kept still for a while."""
        launching = asyncio.ensure_future(self._launch())
        try:
            process = await asyncio.shield(launching)
        except asyncio.CancelledError:
            # asyncio waits for ever for a process whose start is cancelled half-way: have it whole first.
            await asyncio.wait({launching})
            raise
        except OSError as error:
            raise ConfigurationError(f"--app {self._arguments[0]}: {error.strerror}") from None
        assert process.stdout is not None
        assert process.stderr is not None
        self._tasks = [
            asyncio.create_task(self._listen(process.stdout)),
            asyncio.create_task(self._overhear(process.stderr)),
            asyncio.create_task(self._watch()),
        ]
        self._recorder.tell(f"the application runs: {shlex.join(self._arguments)}")
        with suppress(TimeoutError):
            async with asyncio.timeout(_START_LIMIT):
                recorder = self._recorder
                while process.returncode is None and not (recorder.sent or recorder.arrivals):  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_PAUSE)

    async def _launch(self) -> asyncio.subprocess.Process:
        self._process = await asyncio.create_subprocess_exec(
            *self._arguments,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=_LONGEST_LINE,
            # Ctrl-C is for the drill, which ends the application in its turn.
            start_new_session=True,
        )
        return self._process

    async def run(self) -> None:
        """Let it send for as long as the scenario says, or until it ends by itself."""
        assert self._process is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(self._scenario.send_for):
                await self._process.wait()

    def spooled(self) -> int:
        return sum(client.spooled for client in self._clients.values())

    def is_settled(self) -> bool:
        if self._was_asked:
            return True  # it has ended, and its states with it
        states = (state for client in self._clients.values() for state in client.states.values())
        return all(state is EntityState.HEALTHY for state in states) and not self.spooled()

    async def retire(self) -> None:
        """Ask it to end, and learn by which way its messages went."""
        await self.close()
        redirects = await asyncio.to_thread(read_redirects, self._state)
        for tally in self._recorder.tallies.values():
            tally.by_route.update(primary=0, backlog=0)
        for message in self.sent():
            if message.outcome == "returned" and message.path:
                key = (path_key(message.path), message.message_id)
                message.route = "backlog" if key in redirects else "primary"
                self._recorder.tallies[key[0]].by_route[message.route] += 1

    async def close(self) -> None:
        process = self._process
        if process is None or self._is_over:
            return
        listeners = self._tasks[:2]
        self._was_asked = self._was_asked or process.returncode is None
        _signal_group(process, signal.SIGTERM)
        # A child of it that still runs keeps its outputs open.
        ending = {asyncio.ensure_future(process.wait()), *listeners}
        _, late = await asyncio.wait(ending, timeout=_END_GRACE)
        if late:
            self._was_killed = True
            self._recorder.tell(f"the application did not end within {_END_GRACE:g} s and was killed")
        # Also a child that has closed its outputs.
        _signal_group(process, signal.SIGKILL)
        await asyncio.wait(ending, timeout=_END_GRACE)
        await cancel_all(*ending, *self._tasks)
        self._is_over = True

    # -- listening

    async def _listen(self, stream: asyncio.StreamReader) -> None:
        only = self._scenario.entities[0].path if len(self._scenario.entities) == 1 else ""
        async for line in stream:
            found = parse_line(line.decode(errors="replace"))
            if found is not None:
                message_id, path, outcome = found
                self._note(message_id, path or only, outcome)

    def _note(self, message_id: str, path: str, outcome: SendOutcome) -> None:
        now = self._recorder.now()
        plan = self._scenario.entity(path) if path else None
        message = SentMessage(
            message_id=message_id,
            path=path if plan is None else plan.path,
            client="app",
            position=len(self._recorder.sent),
            began=now,
            ended=now,
            outcome=outcome,
            error="" if outcome == "returned" else "the application says that it was refused",
        )
        self._recorder.note_reported(message)

    async def _overhear(self, stream: asyncio.StreamReader) -> None:
        async for line in stream:
            self._told.append(line.decode(errors="replace").rstrip())

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_PAUSE)
            pictures = await asyncio.to_thread(
                read_status_files, status_dir(self._state), now=self._recorder.began + self._recorder.now()
            )
            for picture in pictures:
                self.tells_states = True
                self._follow(picture.pid, picture.status)

    def _follow(self, pid: int, status: Mapping[str, Any]) -> None:
        client = self._clients.setdefault(pid, _Client())
        client.spooled = (status.get("spool") or {}).get("messages", 0)
        for entity in status["entities"]:
            health = entity["health"]
            path, new = health["path"], EntityState(health["state"])
            tally = self._recorder.tallies.get(path_key(path))
            if tally is None:
                continue
            old = client.states.get(path, EntityState.HEALTHY)
            self._recorder.watch(f"pid {pid}", path)
            if new is not old:
                at = health["since"] or self._recorder.began + self._recorder.now()
                change = StateChange(path, old, new, at, health["reason"])
                self._recorder.note_state(f"pid {pid}", change)
            client.states[path] = new
            client.pings[path] = health["pings"]
            tally.pings = sum(one.pings.get(path, 0) for one in self._clients.values())
            self._count_routes(client, path, entity["sent"])

    def _count_routes(self, client: _Client, path: str, sent: Mapping[str, Mapping[str, int]]) -> None:
        """As the clients themselves count, while they run."""
        client.sent[path] = {route: counts["ok"] for route, counts in sent.items()}
        routes = self._recorder.tallies[path_key(path)].by_route
        for route in routes:
            routes[route] = sum(one.sent.get(path, {}).get(route, 0) for one in self._clients.values())

    # -- accounting

    def sent(self) -> Sequence[SentMessage]:
        """What it says it sent, with the paths that have become known."""
        for message in self._recorder.sent:
            if not message.path:
                message.path = self._recorder.paths.get(message.message_id, "")
        return self._recorder.sent

    def account(
        self, resting: Iterable[Resting], redirected: Iterable[tuple[str, str]]
    ) -> Sequence[SentMessage]:
        """What it sent, as far as anybody knows: what it named, and what the namespaces have of it."""
        places = {one.message_id: one.path for one in resting}
        places |= {message_id: path for path, message_id in redirected}
        for message in self.sent():
            message.path = message.path or places.get(message.message_id, "")
        self._find_sessions()
        named = {one.message_id for one in self._recorder.sent}
        # One that it could not name any more when it was ended; without names, all of them.
        outcome: SendOutcome = "unknown" if named else "returned"
        places |= {one.message_id: one.path for one in self._recorder.arrivals}
        more = [
            SentMessage(message_id=key, path=path, client="app", position=index, outcome=outcome)
            for index, (key, path) in enumerate(places.items(), start=len(named))
            if key not in named
        ]
        return [*self._recorder.sent, *more]

    def _find_sessions(self) -> None:
        """Its lines name no session; its messages do, where they have come to."""
        sessions = {(path_key(one.path), one.message_id): one.session for one in self._recorder.arrivals}
        for message in self._recorder.sent:
            message.session = sessions.get((path_key(message.path), message.message_id))

    def _unmet_faults(self) -> list[str]:
        """The entities that the scenario breaks, each by itself, and that nothing was sent to."""
        broken = {
            path_key(step.entity): step.entity
            for step in self._scenario.faults.steps
            if step.entity is not None and step.namespace == PRIMARY and step.kind != CLEAR
        }
        met = {path_key(message.path) for message in self._recorder.sent}
        met |= {path_key(one.path) for one in self._recorder.arrivals}
        return sorted(path for key, path in broken.items() if key not in met)

    def checks(self) -> list[Check]:
        """Whether it ended as it should."""
        code = None if self._process is None else self._process.returncode
        ended_as_asked = self._was_asked and code in (-signal.SIGTERM, 128 + signal.SIGTERM)
        is_clean = not self._was_killed and (code == 0 or ended_as_asked)
        detail = f"exit code {code}{f'; it said: {self._told[-1]}' if self._told and not is_clean else ''}"
        if self._was_killed:
            detail = f"it did not end within {_END_GRACE:g} s of SIGTERM and was killed; {detail}"
        return [Check(name="the application ended cleanly", passed=is_clean, detail=detail)]

    def notes(self) -> list[str]:
        """What the report should say of it."""
        notes = [f"Drilled: {shlex.join(self._arguments)}"]
        if unmet := self._unmet_faults():
            notes.insert(
                0,
                f"The scenario breaks {' and '.join(unmet)}, which the application never sent to: this drill "
                "says nothing about that outage. Let the application send there, or name its entities in a "
                "scenario of your own.",
            )
        if not self._recorder.sent:
            notes.append(
                "The application named no message id, so that all messages that either namespace took count "
                "as sent. Let it print `sent ID` for each send that returns."
            )
        if not self.tells_states:
            notes.append(
                f"The application's client has no state_dir in {STATE_ENV}: states, routes and the bill of "
                "its sends are not known, and the promises about them were not checked."
            )
        return notes
