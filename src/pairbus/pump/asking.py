"""A question that is put to a queue, and may be called off.

It is asked in the task of whoever asks: a task for each question, to be cancelled, would cost as much as the
question. So to call it off is to cancel that task, and to take this back when it is noticed.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Asking:
    """The questions of one task, one at a time."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self._is_called_off = False

    @property
    def is_on(self) -> bool:
        """Whether an answer is waited for."""
        return self._task is not None

    async def ask(self, question: Coroutine[Any, Any, list[T]]) -> list[T]:
        """The answer; nothing, if it is called off."""
        self._task = asyncio.current_task()
        try:
            return await question
        except asyncio.CancelledError:
            if not self._take_back():
                raise  # it was not us, or not only
            return []
        finally:
            self._take_back()
            self._task = None

    def call_off(self) -> None:
        """Wait for no answer any longer."""
        if self._task is not None and not self._is_called_off:
            self._is_called_off = True
            self._task.cancel()

    def _take_back(self) -> bool:
        """Whether the task was cancelled by us alone; it is not any more."""
        if not self._is_called_off or self._task is None:
            return False
        self._is_called_off = False
        return self._task.uncancel() == 0
