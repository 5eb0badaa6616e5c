WHERE = "the program's own rich"
