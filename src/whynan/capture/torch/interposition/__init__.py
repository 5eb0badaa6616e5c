"""Interposition: the functions of torch and Python that a dispatch mode does not see."""
