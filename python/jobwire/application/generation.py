"""The generation of the times that a client writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from jobwire.errors import ConfigError, NoReply, RedisRefused, RedisUnreachable
from jobwire.protocol.pushing import detect_generation
from jobwire.protocol.times import Generation
from jobwire.protocol.wire import Op

if TYPE_CHECKING:
    from jobwire.application.job_writer import JobWriter

__all__ = ["FleetGeneration", "GenerationSetting"]

GenerationSetting = Literal["auto", 7, 8]
DETECT_INTERVAL_S = 60.0  # during which the generation of the fleet is assumed not to change


class FleetGeneration:
    """The generation to write: the one that is set, or the oldest of the fleet. [GEN-5]

    Args:
        setting: Generation to write; `auto` asks the processes in Redis.
        writer: Writes the jobs; it may be able to without Redis.

    Raises:
        ConfigError: The setting is not one of these.
    """

    def __init__(self, setting: GenerationSetting, writer: JobWriter) -> None:
        if setting not in ("auto", 7, 8):
            raise ConfigError(f"generation: {setting!r} is not one of 'auto', 7, 8")
        self._setting = setting
        self._writer = writer
        self._detected: tuple[Generation, float] | None = None
        self._read: set[bytes] = set()  # processes that are not old; each change is atomic

    def known(self, now: float) -> Generation | None:
        """Return the generation if Redis need not be asked for it."""
        if self._setting != "auto":
            return self._setting
        if self._detected is None or not 0 <= now - self._detected[1] < DETECT_INTERVAL_S:
            return None
        return self._detected[0]

    def find(self, now: float) -> Op[Generation]:
        """Return the generation to write; asks Redis at most once a minute. [GEN-5] [GEN-7]

        Raises:
            RedisTrouble: Redis does not answer, and the job cannot be kept without it.
        """
        known = self.known(now)
        if known is not None:
            return known
        writer = self._writer
        if writer.transport.overrides:
            return 8  # no Redis to ask
        if writer.keeper is not None and writer.keeper.holds:  # the push is kept as well
            return self._unasked()
        try:
            detected = yield from self._detect()
        except (NoReply, RedisUnreachable, RedisRefused) as error:
            if writer.may_keep():
                return self._unasked()
            if isinstance(error, NoReply):  # only reads were sent
                raise RedisUnreachable(f"{error}; nothing was written") from None
            raise
        self._detected = detected, now
        return detected

    def _detect(self) -> Op[Generation]:
        """Ask Redis."""
        return (yield from detect_generation(self._writer.keys, self._read))

    def _unasked(self) -> Generation:
        """Return the last answer, or else 7, which is read rightly by all. [GEN-5]"""
        return 7 if self._detected is None else self._detected[0]
