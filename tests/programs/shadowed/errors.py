WHERE = "the program's own errors"
