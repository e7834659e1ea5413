"""Embedded Service Bus namespaces in this process: start, describe, stop.

with Broker({"contoso": 0, "contoso-dr": 0}) as broker:          # on a thread of its own
    ServiceBusClient.from_connection_string(broker["contoso"].connection_string)

async with Broker({"contoso": 0}) as broker:                      # on the running event loop
    ...
"""

import asyncio
import logging
import re
import secrets
import shutil
import ssl
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

from pairbus.clock import Clock, SystemClock
from pairbus.errors import ConfigurationError
from pairbus.plumbing.files import make_directory
from pairbus.plumbing.hosts import is_loopback
from pairbus.portal import Portal

from .access.certificate import Certificate, ensure_certificate, load_given, server_context
from .access.policies import Policies, Policy
from .access.web_tokens import JwtKey
from .control import ControlApi, ControlLine
from .credits import limit_credits
from .engine.namespace import Namespace
from .engine.settings import NamespaceLimits
from .engine.tiers import Strictness, Tier, limits_of
from .entities.applying import AppliedEntities, apply_entities
from .entities.files import EntityFiles
from .errors import BrokerError, StoreError
from .faults.plan import FaultPlan
from .gate import ConnectionLimits, Visitor, raise_descriptor_limit
from .handle import NamespaceHandle
from .host import NamespaceHost
from .links.held_bytes import Burdens
from .links.idleness import IdleTimeouts, IdleWatch
from .listener import Listener
from .store.sqlite import SqliteStore
from .store.store import MemoryStore, Store

T = TypeVar("T")
log = logging.getLogger(__name__)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,49}")
# Far longer than any start, stop or call takes; a deadline so that nothing waits for ever.
_DEADLINE = 30.0


_Choice = TypeVar("_Choice", Tier, Strictness)


def _choose(kind: type[_Choice], word: str) -> _Choice:
    try:
        return kind(word)
    except ValueError:
        known = ", ".join(kind)
        raise ConfigurationError(f"there is no {kind.__name__.lower()} {word!r}; there are {known}") from None


class Broker:
    """Namespaces, one port each, and a control address. Use it with `with` or `async with`, once."""

    def __init__(
        self,
        namespaces: Mapping[str, int],
        *,
        data_dir: Path | str | None = None,
        policies: Sequence[Policy] = (),
        host: str = "127.0.0.1",
        control_port: int = 0,
        certificate: tuple[Path, Path] | None = None,
        jwt_key: Path | None = None,
        jwt_issuers: Sequence[str] = (),
        fault_plan: FaultPlan | Path | None = None,
        clock: Clock | None = None,
        tier: Tier | str = Tier.STANDARD,
        strictness: Strictness | str = Strictness.STRICT,
        limits: NamespaceLimits | None = None,
        credits: int | None = None,
        connection_limits: ConnectionLimits | None = None,
        idle_timeouts: IdleTimeouts | None = None,
        entities: Sequence[Path | str] = (),
    ) -> None:
        """`namespaces` maps names to ports (0: any free one). Without `data_dir` everything is in memory.

        `certificate` is a PEM certificate and its key; one is made when it is not given. `jwt_key` is a file
        with the public key, or the shared secret, that verifies JSON web tokens; without it they are refused.
        With `jwt_issuers` their issuer (`iss`) must be one of these. `connection_limits` count for each
        namespace. Without `idle_timeouts` links and connections that nobody uses stay as they are. `entities`
        are files that declare queues and topics: TOML, or the official emulator's `Config.json`. `tier` and
        `strictness` choose the quotas, unless `limits` gives them one by one; `credits` are those of the
        Standard tier, so many a second and namespace, 1,000 in Azure.
        """
        for name in namespaces:
            if not _NAME.fullmatch(name):
                raise ConfigurationError(
                    f"{name!r} is no name of a namespace: a letter, then letters, digits, dashes, 50 at most"
                )
        for name, other in combinations(namespaces, 2):
            if name.lower() == other.lower():
                raise ConfigurationError(
                    f"{name!r} and {other!r} are one namespace: their names know no case; leave one out"
                )
        if not host:
            raise ConfigurationError("host is empty: name the address to listen on, such as 127.0.0.1")
        if not namespaces:
            raise ConfigurationError("a broker needs at least one namespace, such as Broker({'contoso': 0})")
        self.address = host
        self._ports = dict(namespaces)
        self._data_dir = None if data_dir is None else Path(data_dir)
        self._policies = tuple(policies)
        self._control_port = control_port
        self._given_certificate = certificate
        if jwt_issuers and jwt_key is None:
            raise ConfigurationError("an issuer of JSON web tokens needs a key that verifies them: jwt_key")
        self._jwt_key = None if jwt_key is None else JwtKey.load(jwt_key, issuers=jwt_issuers)
        self._plan = FaultPlan.load(fault_plan) if isinstance(fault_plan, Path) else fault_plan
        if self._plan is not None:
            self._plan.check_namespaces(self._ports)
        self._entities = EntityFiles([Path(path) for path in entities])
        self._entities.check_namespaces(self._ports)
        # Namespaces that do not have yet what the files say.
        self._undeclared: set[str] = set()
        self._clock = clock or SystemClock()
        self._limits = limits or limits_of(_choose(Tier, tier), _choose(Strictness, strictness))
        if credits is not None and credits < 1:
            raise ConfigurationError(f"credits are at least 1 a second, not {credits}; None is without limit")
        if credits is not None and self._limits.sku == "Premium":
            raise ConfigurationError("the Premium tier has no credits; they are those of Basic and Standard")
        self._credits = credits
        self._burdens = Burdens(self._limits.largest_message_size)
        self._connection_limits = connection_limits or ConnectionLimits()
        self._idle_timeouts = idle_timeouts
        self._control_token = secrets.token_urlsafe(24)
        self._hosts: dict[str, NamespaceHost] = {}
        self._control: Listener | None = None
        self._control_api: ControlApi | None = None
        self._certificate: Certificate | None = None
        self._context: ssl.SSLContext | None = None
        self._scratch: Path | None = None
        self._portal: Portal | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: int | None = None
        self._was_started = False

    # -- life

    def __enter__(self) -> "Broker":
        self._claim_start()
        self._portal = Portal("pairbus-broker")
        try:
            self._portal.call(self._start, timeout=_DEADLINE)
        except BaseException:
            self._portal.close(timeout=_DEADLINE)
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._end(NamespaceHost.stop)

    async def __aenter__(self) -> "Broker":
        self._claim_start()
        self._start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        if self._loop is None:
            return
        self._finish(NamespaceHost.stop)
        # Transports that were told to close do so on the next turns of the loop.
        await asyncio.sleep(0)

    def kill(self) -> None:
        """End as by a power cut: no goodbye, and nothing that was not committed is kept."""
        self._end(NamespaceHost.kill)

    async def serve_until(self, stop: asyncio.Event) -> None:
        """Wait for `stop`; for programs whose only work is the broker."""
        await stop.wait()

    def _end(self, end_host: Callable[[NamespaceHost], None]) -> None:
        if self._loop is None:
            return
        self.call(lambda: self._finish(end_host))
        if self._portal is not None:
            self._portal.close(timeout=_DEADLINE)

    def _claim_start(self) -> None:
        if self._was_started:
            raise BrokerError("a broker is started once; make a new one")
        self._was_started = True

    def _start(self) -> None:
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        try:
            limits = self._connection_limits
            raise_descriptor_limit(len(self._ports) * (limits.connections + limits.strangers))
            if self._given_certificate is not None:
                self._certificate = load_given(*self._given_certificate, now=self._clock.now())
            for name, port in self._ports.items():
                host = self._make_host(name)
                self._hosts[name] = host
                host.start(self.address, port, tls=self._tls, limits=limits)
                if self._idle_timeouts is not None:
                    IdleWatch(self._idle_timeouts, host).start()
                self._declare_entities(host)
            self._start_control()
            self._start_plan()
        except BaseException:
            self._finish(NamespaceHost.kill)
            raise

    def _finish(self, end_host: Callable[[NamespaceHost], None]) -> None:
        for host in self._hosts.values():
            end_host(host)
        if self._control is not None:
            self._control.close()
        if self._control_api is not None:
            self._control_api.close()
        if self._scratch is not None:
            shutil.rmtree(self._scratch)
        self._loop = None

    # -- parts

    def _make_certificate(self) -> Certificate:
        """Made when it is first asked for: whoever speaks no TLS need not wait for a key."""
        if self._certificate is None:
            if self._data_dir is None:
                self._scratch = Path(tempfile.mkdtemp(prefix="pairbus-"))
            directory = self._scratch or self._data_dir or Path()
            self._certificate = ensure_certificate(directory, now=self._clock.now())
        return self._certificate

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = server_context(self._make_certificate())
        return self._context

    def _make_host(self, name: str) -> NamespaceHost:
        now = self._clock.now()
        if self._data_dir is None:
            store: Store = MemoryStore()
            policies = Policies.generate(self._policies, now=now)
        else:
            directory = self._data_dir / name
            make_directory(directory)
            store = SqliteStore(directory / "store.db")
            file = directory / "policies.json"
            policies = Policies.load_or_create(file, given=self._policies, now=now)
        host = NamespaceHost(
            name,
            store=store,
            policies=policies,
            clock=self._clock,
            limits=self._limits,
            jwt_key=self._jwt_key,
            is_alone=len(self._ports) == 1,
            burdens=self._burdens,
        )
        if self._credits is not None:
            limit_credits(host, self._credits)
        return host

    def _declare_entities(self, host: NamespaceHost) -> None:
        """Before anybody is heard: the event loop has not had its turn since the port was opened."""
        refused = self._apply_entities(host).refused
        if refused:
            raise ConfigurationError(
                "\n".join(f"entity {path} of {host.name}: {why}" for path, why in refused.items())
            )

    def _apply_entities(self, host: NamespaceHost) -> AppliedEntities:
        declared = self._entities.declared(host.name)
        if not declared.names():
            return AppliedEntities()
        done = host.run(lambda engine, now: apply_entities(engine, declared, now))
        fields = {"namespace": host.name, "created": len(done.created), "updated": len(done.updated)}
        log.info("entities declared", extra={"fields": fields})
        return done

    def _start_control(self) -> None:
        api = self._control_api = ControlApi(
            self._hosts,
            token=self._control_token,
            describe=lambda: self.describe(with_keys=False),
            is_local=is_loopback(self.address),
        )

        def choose(first: bytes, transport: asyncio.Transport, visitor: Visitor) -> ControlLine:
            return api.make_line(visitor)

        self._control = Listener(
            self.address,
            self._control_port,
            choose=choose,
            tls=self._tls,
            limits=self._connection_limits,
            monotonic=self._clock.monotonic,
        )
        self._control.open()

    def _start_plan(self) -> None:
        for step in self._plan.steps if self._plan else ():
            host = self._hosts[step.namespace]
            host.later(step.at, partial(host.fault_desk.take_step, step))

    # -- use

    def __repr__(self) -> str:
        return f"<Broker of {', '.join(self._ports)}>"

    def __getitem__(self, name: str) -> NamespaceHandle:
        return NamespaceHandle(self, self._hosts[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._hosts)

    @property
    def certificate(self) -> Path:
        """The PEM file that clients must trust to reach the namespaces by TLS."""
        return self.call(self._make_certificate).cert_path

    def describe(self, *, with_keys: bool = True) -> dict[str, Any]:
        """All that one needs to reach the namespaces, as the ready file has it. It holds secrets.
        Without keys, policies are told by name alone.
        """
        assert self._control is not None, "the broker has not been started"
        described: dict[str, Any] = {}
        for name in self._hosts:
            handle = self[name]
            reach = {"port": handle.port, "cert": str(self.certificate.absolute())}
            keys = {"connection_string": handle.connection_string, "policies": handle.policies}
            described[name] = {**reach, **keys} if with_keys else {**reach, "policies": list(handle.policies)}
        control = {"url": f"http://{self.address}:{self._control.port}"}
        if with_keys:
            control["token"] = self._control_token
        return {**described, "control": control}

    def tick(self) -> None:
        """Look at the clock again; for tests that pass a manual clock and have moved it."""

        def tick_all() -> None:
            for host in self._hosts.values():
                host.tick()
            if self._control is not None:
                self._control.gate.tick()

        self.call(tick_all)

    def reload_entities(self) -> None:
        """Read the files with entities that have changed, and make it so. What is wrong goes to the log; what
        could not be stored is tried again with the next call.
        """
        self.call(self._reload_entities)

    def _reload_entities(self) -> None:
        if self._entities.reread(self._hosts):
            self._undeclared = set(self._hosts)
        for name in sorted(self._undeclared):
            try:
                refused = self._apply_entities(self._hosts[name]).refused
            except StoreError as error:
                refused = {"": str(error)}
            else:
                self._undeclared.discard(name)
            for path, reason in refused.items():
                fields = {"namespace": name, "entity": path, "reason": reason}
                log.error("a declared entity is refused", extra={"fields": fields})

    def call(self, function: Callable[[], T]) -> T:
        """Call a function on the broker's event loop, from whatever thread, and return its result."""
        if threading.get_ident() == self._thread:
            return function()

        async def perform() -> T:
            return function()

        return self._wait_for(perform())

    def _run(self, host: NamespaceHost, act: Callable[[Namespace, float], T]) -> T:
        """Do something to a namespace, from whatever thread, and return when it is committed."""
        if threading.get_ident() == self._thread:
            return host.run(act)
        return self._wait_for(host.perform(act))

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            work.close()
            raise BrokerError("the broker is not running: use it inside of its `with` block")
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(_DEADLINE)
        except CancelledError:
            raise BrokerError(
                "the broker has ended while this was under way; whether it was done is seen at its next start"
            ) from None
