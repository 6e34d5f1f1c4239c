"""The native module."""

import json

import kaido
import pytest
from kaido import _native


def test_the_package_has_the_version_of_the_binary() -> None:
    """One version for all."""
    assert kaido.__version__ == _native.__version__
    assert kaido.__version__.count(".") == 2


def test_traffic_is_completed() -> None:
    """What is left out is what the model says."""
    stream = {"name": "a", "port": "p", "source": {"template": {"bytes": "00 01"}}}
    traffic = json.loads(_native.check_traffic(json.dumps({"streams": [stream]})))
    assert traffic["seed"] == 1
    assert traffic["streams"][0]["rate"] == {"weight": 1.0}
    assert traffic["streams"][0]["source"]["template"]["bytes"] == "0001"


def test_wrong_traffic_names_the_place() -> None:
    """Errors come from the model itself."""
    with pytest.raises(ValueError, match="traffic: unknown field `strems`"):
        _native.check_traffic('{"strems": []}')
