"""A sync of a file that the kernel does beside the event loop, which hears of its end.

A thread that syncs has to be woken and wakes the loop again, which takes half as long as the sync of a fast
disk. Linux syncs by itself what `io_submit` asks for (`IOCB_CMD_FDSYNC`, from 4.18 on), and writes to an
eventfd when it is done, on which the loop waits as it does on its sockets. Neither Python nor any library
that we use has these calls, so they are made here, through `ctypes`.

1. One sync is under way at a time.
2. `begin` never waits. False: nothing was begun, since the kernel cannot (another system, another machine, a
   container that forbids it, a file system without syncs), or the loop cannot be told. Whoever asked syncs in
   another way.
3. The end is told once: on the loop; or on a thread, to whoever has come there to `wait` for it. That needs
   no loop, so also the end of a sync whose loop has been closed is told. When `wait` returns, it has been.
4. Who is interrupted leaves nobody waiting: a sync that was being begun has begun, or nobody hears of it; an
   end that was being heard of, or told, is told in the next turn, perhaps once more. So is one that
   whoever is told fails at, and no third time.
5. A process that has been forked has none of this. There the kernel refuses, and rule 2 holds.
"""

import asyncio
import ctypes
import errno
import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from struct import Struct
from typing import NamedTuple

log = logging.getLogger(__name__)
#: Told how a sync has ended: whether the data is on the disk.
Ended = Callable[[bool], None]

# `struct iocb`: what is to be done, with which file, and which eventfd hears of the end.
_REQUEST = Struct("<QIiHhIQQqQII")
_FDSYNC, _TELLS_EVENTFD = 3, 1
# `struct io_event`: of it the result is asked for.
_ANSWER = Struct("<QQqq")
# The least that can be asked for: the system allows some 65,000 in all.
_AT_ONCE = 1
_NO_TIME = bytes(16)


class _Calls(NamedTuple):
    """Numbers of system calls."""

    setup: int
    destroy: int
    submit: int
    events: int


_NUMBERS = {"x86_64": _Calls(206, 207, 209, 208), "aarch64": _Calls(0, 1, 2, 4)}


class _Kernel:
    """The system calls. Short ones keep the interpreter, or each would cost a change of threads."""

    def __init__(self, numbers: _Calls) -> None:
        self.numbers = numbers
        self._short = self._find(ctypes.PyDLL(None, use_errno=True))
        self._long = self._find(ctypes.CDLL(None, use_errno=True))

    @staticmethod
    def _find(library: ctypes.CDLL) -> Callable[..., int]:
        call = library.syscall
        call.restype = ctypes.c_long
        found: Callable[..., int] = call
        return found

    def ask(self, number: int, *arguments: object, is_long: bool = False) -> int:
        """A system call; OSError if it fails."""
        result = (self._long if is_long else self._short)(ctypes.c_long(number), *arguments)
        if result < 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        return result


@cache
def _find_kernel() -> _Kernel | None:
    numbers = _NUMBERS.get(os.uname().machine) if sys.platform == "linux" else None
    return None if numbers is None or sys.maxsize < 1 << 32 else _Kernel(numbers)


class KernelSync:
    """Syncs files for one event loop, one after another."""

    def __init__(self) -> None:
        """Asks for nothing yet."""
        self._kernel = _find_kernel()
        self._is_able = self._kernel is not None
        self._queue: ctypes.c_ulong | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._eventfd = -1
        self._request = (ctypes.c_char * _REQUEST.size)()
        self._pointer = (ctypes.c_void_p * 1)(ctypes.addressof(self._request))
        self._answer = (ctypes.c_char * _ANSWER.size)()
        # Which sync that is, or was, and which was asked for last: the kernel repeats it in its answer.
        self._number = self._asked = 0
        # Guards the two below. The loop holds it while it tells, so that whoever comes to wait then goes on
        # when that is over; and it never waits for the kernel. What is told may begin the next one.
        self._lock = threading.RLock()
        self._ended: Ended | None = None
        self._is_awaited = False
        # Whether whoever told the last end was interrupted, or has failed.
        self._is_in_trouble = False

    @property
    def is_able(self) -> bool:
        """Whether the kernel can do it, as far as is known."""
        return self._is_able

    def begin(self, descriptor: int, ended: Ended) -> bool:
        """Have the data of a file synced; called on the event loop that is to be told. False: rule 2."""
        kernel, loop = self._kernel, asyncio.get_running_loop()
        if kernel is None or not self._is_able or self._ended is not None:
            return False
        if self._loop is not loop and self._loop is not None and not self._loop.is_closed():
            return False
        try:
            queue = self._get_ready(kernel, loop)
            self._asked += 1
            about = descriptor, 0, 0, 0, 0, _TELLS_EVENTFD, self._eventfd
            _REQUEST.pack_into(self._request, 0, self._asked, 0, 0, _FDSYNC, 0, *about)
            kernel.ask(kernel.numbers.submit, queue, ctypes.c_long(1), self._pointer)
        except Exception as error:  # noqa: BLE001 - whatever it is, a thread can
            self._is_able = False  # it would say so again
            log.debug("the kernel does not sync for us, so a thread does: %r", error)
            return False
        # Only now: who is interrupted before that leaves nobody waiting for what may not end.
        self._number, self._ended = self._asked, ended
        return True

    def wait(self) -> None:
        """Wait for what is under way, if anything is, and tell its end here; on any thread but the loop's."""
        with self._lock:
            if self._ended is None:
                return
            self._is_awaited = True  # from now on the loop leaves it to us
        is_kept = self._take_answer(is_long=True)
        with self._lock:
            ended, self._ended, self._is_awaited = self._ended, None, False
        ended(bool(is_kept))

    def end(self) -> None:
        """Give back what the kernel keeps for it; on a thread, since that takes a while."""
        self.wait()
        self._is_able = False
        kernel, queue, self._queue = self._kernel, self._queue, None
        if kernel is not None and queue is not None:
            with suppress(OSError):  # the process gives it back as well, when it ends
                kernel.ask(kernel.numbers.destroy, queue, is_long=True)

    def leave_loop(self) -> None:
        """Have the loop wait for nothing more; on the loop."""
        self._is_able = False
        descriptor, self._eventfd = self._eventfd, -1
        if descriptor >= 0:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(descriptor)
            os.close(descriptor)

    def _get_ready(self, kernel: _Kernel, loop: asyncio.AbstractEventLoop) -> ctypes.c_ulong:
        if self._eventfd < 0:
            self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        if self._loop is not loop:
            loop.add_reader(self._eventfd, self._hear)
            self._loop = loop
        if self._queue is None:
            queue = ctypes.c_ulong(0)
            kernel.ask(kernel.numbers.setup, ctypes.c_ulong(_AT_ONCE), ctypes.byref(queue))
            self._queue = queue
        return self._queue

    def _hear(self) -> None:
        try:
            os.read(self._eventfd, 8)
            self._tell_here()
        except BlockingIOError:
            return
        except BaseException:
            if not self._is_in_trouble:
                self._is_in_trouble = True
                os.eventfd_write(self._eventfd, 1)  # rule 4
            raise
        self._is_in_trouble = False

    def _tell_here(self) -> None:
        with self._lock:
            if self._ended is None or self._is_awaited:
                return  # somebody has waited for it, or does
            is_kept = self._take_answer(is_long=False)
            if is_kept is None:
                return  # what was heard is the end of the sync before
            ended, self._ended = self._ended, None
            try:
                ended(is_kept)
            except BaseException:
                if not self._is_in_trouble:  # for the second time
                    self._ended = self._ended or ended  # rule 4, unless the next one is under way already
                raise

    def _take_answer(self, *, is_long: bool) -> bool | None:
        """Whether the data is on the disk; None if that is not known yet, and not waited for."""
        kernel = self._kernel
        assert kernel is not None
        least = ctypes.c_long(1 if is_long else 0)
        time = None if is_long else _NO_TIME
        while True:
            number, _, result, _ = _ANSWER.unpack(self._answer)
            if number == self._number:  # also if whoever took it before was interrupted
                if result < 0:
                    log.debug("a sync has failed: %s", errno.errorcode.get(-result, result))
                return bool(result == 0)
            try:
                found = kernel.ask(
                    kernel.numbers.events,
                    self._queue,
                    least,
                    ctypes.c_long(1),
                    self._answer,
                    time,
                    is_long=is_long,
                )
            except InterruptedError:
                continue
            except OSError as error:
                self._is_able = False
                log.warning("nobody knows how a sync has ended, so a thread syncs from now on: %s", error)
                return False
            if not found:
                return None
