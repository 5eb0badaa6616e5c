"""The verdict of a fix: original against repaired, on the failing input and on others, and both against the truth."""
