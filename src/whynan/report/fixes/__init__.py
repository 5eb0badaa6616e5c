"""The fixes of a report: their list, their numbers, a verdict of a fix of the user's own, a pull request."""
