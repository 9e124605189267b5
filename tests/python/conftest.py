"""How deep the random tests go: ``--hypothesis-profile soak`` for hours, the default for every run."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("quick", max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("soak", max_examples=20_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("quick")
