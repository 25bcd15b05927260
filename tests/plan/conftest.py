"""Assertions of the models that tests share say what they compared, as those of the tests do."""

import pytest

pytest.register_assert_rewrite("tests.plan.conv1d_model", "tests.plan.conv1d_fan_model")
