WHERE = "the program's own click"
