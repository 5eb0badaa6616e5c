"""Where the numbers of an ONNX model come from: the graph as an engine executes it."""
