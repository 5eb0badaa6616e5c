"""Healthy programs that train in unusual ways: two optimizers, probes, scalers, buffers filled late, transforms."""

from __future__ import annotations

import copy
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.quality.healthy_numbers import fit, program


@program
def generative_adversarial_pair() -> None:
    generator, critic = nn.Linear(4, 3), nn.Linear(3, 1)
    first, second = torch.optim.Adam(generator.parameters()), torch.optim.Adam(critic.parameters())
    for _ in range(2):
        second.zero_grad()
        real, made = critic(torch.randn(8, 3)), critic(generator(torch.randn(8, 4)).detach())
        (F.softplus(-real) + F.softplus(made)).mean().backward()
        second.step()
        first.zero_grad()
        F.softplus(-critic(generator(torch.randn(8, 4)))).mean().backward()
        first.step()


@program
def lbfgs_that_probes_infinities() -> None:
    x = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([x], lr=711.0, max_iter=20, line_search_fn="strong_wolfe")
    seen: list[bool] = []

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (1e-3 * x.exp() - x).sum()
        seen.append(bool(torch.isinf(loss)))
        loss.backward()
        return loss

    optimizer.step(closure)
    assert any(seen)
    assert abs(x.item() - math.log(1000)) < 0.5


@program
def average_of_weights() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    average = copy.deepcopy(model)
    swa = torch.optim.swa_utils.AveragedModel(model)
    x = torch.randn(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        swa.update_parameters(model)
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
                slow.lerp_(fast, 0.1)
            for slow, fast in zip(average.buffers(), model.buffers(), strict=True):
                slow.copy_(fast)


@program
def scaler_skips_its_first_step() -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    x = torch.randn(8, 4)
    before = [p.detach().clone() for p in model.parameters()]
    for number in range(3):
        optimizer.zero_grad()
        scaler.scale(model(x * 8).square().mean()).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update(None if number else 1.0)
    assert any(bool((p != q).any()) for p, q in zip(model.parameters(), before, strict=True))


def _optimizers(**flags: bool) -> None:
    x = torch.randn(6, 4)
    for kind in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad):
        model = nn.Linear(4, 2)
        optimizer = kind(model.parameters(), lr=1e-2, **flags)
        for _ in range(2):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()


@program
def foreach_optimizers() -> None:
    _optimizers(foreach=True)


@program
def fused_optimizers() -> None:
    _optimizers(fused=True)


@program
def rarer_optimizers() -> None:
    x = torch.randn(6, 4)
    kinds = (
        torch.optim.RMSprop,
        torch.optim.Adamax,
        torch.optim.NAdam,
        torch.optim.RAdam,
        torch.optim.Adadelta,
        torch.optim.Rprop,
        torch.optim.ASGD,
    )
    for kind in kinds:
        model = nn.Linear(4, 2)
        optimizer = kind(model.parameters())
        for _ in range(2):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()


@program
def buffers_filled_later() -> None:
    model = nn.Linear(4, 4)
    x = torch.randn(6, 4)

    def loss() -> torch.Tensor:
        out = torch.empty(6, 4)
        out[:3] = model(x[:3])
        out[3:] = model(x[3:]).tanh()
        return out.square().mean()

    fit(model, loss)


@program
def cache_allocated_ahead() -> None:
    projection = nn.Linear(4, 8)
    keys, values = torch.empty(1, 10, 4), torch.empty(1, 10, 4)
    with torch.no_grad():
        for position in range(5):
            token = torch.randn(1, 4)
            k, v = projection(token).chunk(2, -1)
            keys[:, position], values[:, position] = k, v
            past = slice(0, position + 1)
            F.scaled_dot_product_attention(token[:, None], keys[:, past], values[:, past])


@program
def clipped_gradients_with_accumulation() -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        (model(torch.randn(6, 4)).square().mean() / 3).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    nn.utils.clip_grad_value_(model.parameters(), 0.5)
    optimizer.step()


@program
def packed_recurrent_sequences() -> None:
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        model = kind(3, 4, batch_first=True, bidirectional=True)
        x = torch.randn(2, 5, 3)
        packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 3]), batch_first=True)
        fit(
            model,
            lambda m=model, p=packed: (
                nn.utils.rnn.pad_packed_sequence(m(p)[0], padding_value=-float("inf"))[0].amax(0).sum()
            ),
        )


@program
def sparse_embedding() -> None:
    table = nn.Embedding(20, 4, sparse=True)
    optimizer = torch.optim.SparseAdam(list(table.parameters()))
    for _ in range(2):
        optimizer.zero_grad()
        table(torch.tensor([1, 3, 3])).square().mean().backward()
        optimizer.step()


@program
def complex_spectrum() -> None:
    model = nn.Linear(16, 16)
    x = torch.randn(4, 16)
    fit(model, lambda: (torch.fft.rfft(model(x)).abs() + 1e-6).log().square().mean())


@program
def per_sample_gradients() -> None:
    model = nn.Linear(4, 1)
    parameters = {k: v.detach() for k, v in model.named_parameters()}

    def loss(p: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, p, (x,)).square().sum()

    gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, torch.randn(5, 4))
    assert gradients["weight"].shape == (5, 1, 4)


@program
def hessian_and_jvp() -> None:
    torch.func.hessian(lambda x: (x.sin() * x).sum())(torch.randn(3))
    torch.func.jvp(torch.tanh, (torch.randn(3),), (torch.ones(3),))


@program
def gradient_penalty() -> None:
    critic = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    x = torch.randn(5, 3, requires_grad=True)

    def loss() -> torch.Tensor:
        score = critic(x)
        (gradient,) = torch.autograd.grad(score.sum(), x, create_graph=True)
        return score.mean() + (gradient.norm(dim=1) - 1).square().mean()

    fit(critic, loss)


@program
def stochastic_depth_under_checkpoint() -> None:
    block, head = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3), nn.GELU()), nn.Linear(4, 1)
    model = nn.ModuleList([block, head])
    x = torch.randn(6, 4)

    def loss() -> torch.Tensor:
        keep = torch.empty(6, 1).bernoulli_(0.8) / 0.8
        return head(x + checkpoint(block, x, use_reentrant=False) * keep).square().mean()

    fit(model, loss)


@program
def convolution_with_norms() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.GroupNorm(2, 4),
        nn.Flatten(),
        nn.Linear(64, 2),
    )
    x, y = torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 1, 0])
    fit(model, lambda: F.cross_entropy(model(x), y))


@program
def autocast_with_norm_and_attention() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    x = torch.randn(2, 5, 8)

    def loss() -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return layer(x, src_mask=nn.Transformer.generate_square_subsequent_mask(5)).float().square().mean()

    fit(layer, loss)


@program
def cosine_and_triplet_losses() -> None:
    model = nn.Linear(4, 4)
    x = torch.randn(6, 4)
    x[0] = 0

    def loss() -> torch.Tensor:
        z = model(x)
        return (
            F.cosine_similarity(z[:3], z[3:]).sum() + F.triplet_margin_loss(z[:2], z[2:4], z[4:]) + F.normalize(z).sum()
        )

    fit(model, loss)


@program
def variational_autoencoder() -> None:
    encoder, decoder = nn.Linear(6, 4), nn.Linear(2, 6)
    model = nn.ModuleList([encoder, decoder])
    x = torch.rand(5, 6)

    def loss() -> torch.Tensor:
        mean, log_variance = encoder(x).chunk(2, -1)
        z = torch.distributions.Normal(mean, (0.5 * log_variance).exp()).rsample()
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(-1).mean()
        return F.binary_cross_entropy_with_logits(decoder(z), x) + 0.1 * divergence

    fit(model, loss)


@program
def states_saved_and_loaded() -> None:
    model = nn.Linear(3, 2)
    fit(model, lambda: model(torch.ones(2, 3)).square().mean())
    other = nn.Linear(3, 2)
    other.load_state_dict(model.state_dict())
    with torch.inference_mode():
        other(torch.ones(2, 3)).tolist()
