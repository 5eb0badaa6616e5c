WHERE = "the program's own pydantic"
