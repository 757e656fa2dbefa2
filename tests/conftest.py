"""Settings of all tests: nothing that measures the machine's pace may fail one."""

from hypothesis import HealthCheck, settings

settings.register_profile("busy-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy-machine")
