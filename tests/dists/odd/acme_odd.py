"""Plugins that load, and whose checks cannot be used as they are; each brings a sound one too."""

from lmcache_core import HealthCheck, hookimpl


class SoundCheck(HealthCheck):
    def name(self):
        return "sound"

    def check(self):
        return True

    @classmethod
    def create(cls, manager):
        return [cls()]


class NamelessCheck(SoundCheck):
    def name(self):
        raise RuntimeError("no licence")


class HurriedCheck(SoundCheck):
    def name(self):
        return "hurried"

    @property
    def interval(self):
        return -5


class TwinCheck(SoundCheck):
    def name(self):
        return "LocalCPUHealthCheck"


class DrainedCheck(SoundCheck):
    def name(self):
        return "drained"

    @property
    def fallback_policy(self):
        return "drain"


class Odd:
    def __init__(self, kind):
        self._kind = kind

    @hookimpl
    def lmcache_health_checks(self):
        return [self._kind, SoundCheck]


odd_name = Odd(NamelessCheck)
odd_interval = Odd(HurriedCheck)
odd_twin = Odd(TwinCheck)
odd_policy = Odd(DrainedCheck)
