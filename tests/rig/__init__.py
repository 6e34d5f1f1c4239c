"""Namespaces, a running node, a simulated RAN, and a counter that trusts neither.

Standard library only: the demonstration uses it on a bare machine.
"""
