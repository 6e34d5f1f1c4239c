"""Traffic through a user plane, from Python.

The bench's generator, receiver and oracle are native; this package describes traffic with scapy's layers and
shows what a run has given as polars frames.
"""

from kaido._native import __version__

__all__ = ["__version__"]
