"""Tests that a program collects and runs itself: pytest, unittest and doctest."""

import doctest
import io
import sys
import unittest

import pytest
import torch


def half(x):
    """Half of it.

    >>> half(torch.ones(2))
    tensor([0.5000, 0.5000])
    """
    return x / 2


def test_half():
    assert half(torch.full((2,), 3.0)).tolist() == [1.5, 1.5]


class Halves(unittest.TestCase):
    def test_it(self):
        weight = torch.ones(2, requires_grad=True)
        half(weight).sum().backward()
        self.assertEqual(weight.grad.tolist(), [0.5, 0.5])


if __name__ == "__main__":
    print(int(pytest.main([__file__, "-p", "no:terminal", "-p", "no:cacheprovider"])))
    print(doctest.testmod())
    result = unittest.main(exit=False, argv=sys.argv[:1], testRunner=unittest.TextTestRunner(io.StringIO())).result
    print(result.testsRun, result.errors, result.failures)
