"""A watched training: the guard, the replays of a bad step, and the report."""
