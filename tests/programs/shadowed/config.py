WHERE = "the program's own config"
