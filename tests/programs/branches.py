"""Programs whose exports have branches and loops; each gives a bad number in a body of them, and a healthy one."""

import torch
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop


class Cond(torch.nn.Module):
    def forward(self, x):
        def positive(v):
            scaled = v * 2
            return torch.log(scaled - 6)

        def negative(v):
            return v / (v - v) + v / 2

        return torch.cond(x.sum() > 0, positive, negative, (x,)).sin()


class Loop(torch.nn.Module):
    def forward(self, x):
        def going(i, v):
            return i < 4

        def body(i, v):
            return i + 1, v * v / 10

        return while_loop(going, body, (torch.zeros((), dtype=torch.int64), x))[1].sin()


class Scan(torch.nn.Module):
    def forward(self, x):
        def step(carried, row):
            carried = carried + row
            return carried, torch.log(carried)

        return scan(step, x[0] * 0 + 3, x)[1]


def main() -> None:
    """Export each into the working directory."""
    for module in (Cond, Loop, Scan):
        name = f"{module.__name__.lower()}.onnx"
        torch.onnx.export(
            module().eval(),
            (torch.ones(3, 4),),
            name,
            input_names=["x"],
            dynamo=True,
            verbose=False,
            external_data=False,
        )


if __name__ == "__main__":
    main()
