"""The native module: traffic in and results out, both as JSON."""

__version__: str

def check_traffic(traffic: str) -> str:
    """Fills in what was left out of traffic; a `ValueError` says what is wrong."""
