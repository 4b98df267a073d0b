"""What every test of a law shares: how fast the machine is, and how few drawn values fit, is no fault of a law."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "laws",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
settings.load_profile("laws")
