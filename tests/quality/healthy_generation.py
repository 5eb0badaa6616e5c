"""Healthy programs that generate: scores of minus infinity where a token is forbidden."""

from __future__ import annotations

import torch

from tests.quality.healthy_numbers import INF, program
from tests.quality.zoo import BY_NAME


@program
def generate_with_scores() -> None:
    model = BY_NAME["gpt2"].build(None, 0.0).eval()
    ids = torch.tensor([[0, 0, 5, 6], [7, 8, 9, 10]])
    out = model.generate(
        ids,
        attention_mask=(ids != 0).long(),
        max_new_tokens=4,
        min_new_tokens=3,
        do_sample=True,
        top_k=5,
        top_p=0.9,
        bad_words_ids=[[11]],
        output_scores=True,
        return_dict_in_generate=True,
        pad_token_id=0,
    )
    assert bool(torch.isinf(out.scores[0]).any())


@program
def generate_beams() -> None:
    model = BY_NAME["gpt2"].build(None, 0.0).eval()
    ids = torch.tensor([[0, 0, 5, 6], [7, 8, 9, 10]])
    model.generate(
        ids,
        attention_mask=(ids != 0).long(),
        max_new_tokens=3,
        num_beams=3,
        no_repeat_ngram_size=2,
        output_scores=True,
        return_dict_in_generate=True,
        pad_token_id=0,
        do_sample=False,
    )


@program
def generate_sequence_to_sequence() -> None:
    model = BY_NAME["t5"].build(None, 0.0).eval()
    model.generate(
        torch.tensor([[5, 6, 7, 2]]), max_new_tokens=4, num_beams=2, output_scores=True, return_dict_in_generate=True
    )


@program
def gumbel_top_k() -> None:
    logits = torch.randn(4, 8)
    logits[:, 3] = -INF
    noise = -torch.log(-torch.log(torch.rand(4, 8).clamp(1e-6, 1 - 1e-6)))
    assert not bool((torch.topk(logits + noise, 3).indices == 3).any())


@program
def beam_search_by_hand() -> None:
    beams, vocabulary = 3, 10
    scores = torch.full((beams,), -INF)
    scores[0] = 0.0
    for _ in range(4):
        step = torch.log_softmax(torch.randn(beams, vocabulary), -1)
        step[:, 0] = -INF
        total = (scores[:, None] + step).view(-1)
        scores, index = total.topk(beams)
        assert bool(((index % vocabulary) != 0).all())


@program
def nucleus_filter() -> None:
    logits = torch.randn(3, 12)
    ordered, index = logits.sort(descending=True)
    drop = ordered.softmax(-1).cumsum(-1) > 0.8
    drop[:, 0] = False
    filtered = logits.masked_fill(drop.scatter(1, index, drop), -INF)
    torch.multinomial(filtered.softmax(-1), 1)
