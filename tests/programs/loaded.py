"""DataLoader workers: persistent, forked and spawned, with their own seeds, and an iterable data set."""

import random

import numpy as np
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    WeightedRandomSampler,
    default_collate,
    get_worker_info,
)


class Squares(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, i):
        if i == 9:
            return {"x": torch.tensor([float(i)]), "drawn": np.float64(0), "worker": get_worker_info().id}
        return {"x": torch.full((1,), float(i)).square(), "drawn": np.random.rand(), "worker": get_worker_info().id}


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        yield from range(info.id, 6, info.num_workers)


class Failing(Squares):
    def __getitem__(self, i):
        raise LookupError(f"no item {i}")


def seeded(worker):
    seed = torch.initial_seed() % 2**32
    np.random.seed(seed)
    random.seed(seed)


if __name__ == "__main__":
    order = torch.Generator().manual_seed(1)
    loader = DataLoader(
        Squares(),
        4,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        worker_init_fn=seeded,
        generator=order,
        collate_fn=default_collate,
    )
    for epoch in range(2):
        for batch in loader:
            weight = torch.ones(1, requires_grad=True)
            (batch["x"] * weight).mean().backward()
            print(epoch, batch["worker"].tolist(), weight.grad.item().hex(), [d.hex() for d in batch["drawn"].tolist()])
    print([b.tolist() for b in DataLoader(Stream(), 2, num_workers=2)])
    sampler = WeightedRandomSampler([0.1, 0.9, 0.5, 0.3], 4, generator=order)
    print([len(b["x"]) for b in DataLoader(Squares(), 2, sampler=sampler, num_workers=1, pin_memory=True)])
    try:
        next(iter(DataLoader(Failing(), num_workers=1)))
    except LookupError as error:
        print(str(error))
