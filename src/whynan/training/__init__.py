"""A training loop under guard: one look at each step, and the replay of a bad one."""
