WHERE = "the program's own yaml"
