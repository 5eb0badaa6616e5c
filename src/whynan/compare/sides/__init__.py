"""Sides: programs that are run operation by operation, each of which can be run again on other operands."""
