"""Settings of random tests: the same problems every time."""

from hypothesis import HealthCheck, settings


def seeded(examples: int) -> settings:
    return settings(
        max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
