"""Opening what a user names, safely: nothing that a file holds is run, and nothing that it names is imported."""
