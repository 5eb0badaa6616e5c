"""The graph: as written, as executed, how the two are paired, and the source lines of its nodes."""
