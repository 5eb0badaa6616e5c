"""A time limit: the handler of an alarm raises, wherever the program is."""

import signal

import torch


class OutOfTime(Exception):
    pass


def ring(number, frame):
    raise OutOfTime("that is enough")


signal.signal(signal.SIGALRM, ring)
weight = torch.ones(4, requires_grad=True)
for delay in (0.05, 0.1, 0.15):
    signal.setitimer(signal.ITIMER_REAL, delay)
    try:
        while True:
            (weight * 2).tanh().sum().backward()
            weight.grad = None
    except OutOfTime as error:
        print(error, weight.tolist())
