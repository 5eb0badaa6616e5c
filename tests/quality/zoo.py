"""A zoo of tiny transformers models from configuration, each with a padded batch."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from huggingface_hub.errors import StrictDataclassFieldValidationError
from torch import nn

logging.getLogger("transformers").setLevel(logging.ERROR)
transformers.logging.set_verbosity_error()

VOCABULARY = 64
BATCH = 2
LENGTH = 12
PADDING = 4

Batch = dict[str, Any]

BASE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
BARE = {k: v for k, v in BASE.items() if k not in ("num_hidden_layers", "max_position_embeddings")}
DECODER = {**BASE, "num_key_value_heads": 2, "head_dim": 8}
GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "n_inner": 48}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4}
BART = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}
VIT = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 16,
    "patch_size": 8,
    "num_channels": 3,
    "num_labels": 4,
}
AUDIO = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 16,
    "conv_dim": (16, 16),
    "conv_stride": (4, 4),
    "conv_kernel": (8, 4),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 4,
    "apply_spec_augment": False,
    "pad_token_id": 0,
    "ctc_zero_infinity": True,
}


def text(label_padding: bool = True, length: int = LENGTH) -> Batch:
    """Token ids padded on the left in every row but the last, with labels that ignore the padding."""
    ids = torch.randint(3, VOCABULARY, (BATCH, length))
    mask = torch.ones_like(ids)
    mask[0, :PADDING] = 0
    ids[0, :PADDING] = 0
    labels = ids.masked_fill(mask == 0, -100) if label_padding else ids.clone()
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def sequence_to_sequence() -> Batch:
    """A padded source and a shorter target."""
    batch = text()
    target = torch.randint(3, VOCABULARY, (BATCH, 8))
    target[0, 6:] = -100
    return {**batch, "labels": target}


def unmasked() -> Batch:
    """Text for models that take no attention mask."""
    batch = text()
    return {"input_ids": batch["input_ids"], "labels": batch["labels"]}


def image() -> Batch:
    """Images with one class each."""
    return {"pixel_values": torch.randn(BATCH, 3, 16, 16), "labels": torch.tensor([0, 3])}


def large_image() -> Batch:
    """Images large enough for four halvings."""
    return {"pixel_values": torch.randn(BATCH, 3, 32, 32), "labels": torch.tensor([0, 3])}


def audio() -> Batch:
    """Waveforms padded on the right, transcribed."""
    mask = torch.ones(BATCH, 320, dtype=torch.long)
    mask[0, 240:] = 0
    labels = torch.randint(1, 16, (BATCH, 3))
    labels[0, 2:] = -100
    return {"input_values": torch.randn(BATCH, 320) * mask, "attention_mask": mask, "labels": labels}


def pairs() -> Batch:
    """Images and their captions, contrasted."""
    batch = text()
    return {
        "input_ids": batch["input_ids"],
        "attention_mask": batch["attention_mask"],
        "pixel_values": torch.randn(BATCH, 3, 16, 16),
        "return_loss": True,
    }


@dataclass(frozen=True)
class Spec:
    """One architecture of the zoo: configuration type, task, settings, batch, and what it cannot run in."""

    name: str
    task: str
    settings: dict[str, Any] = field(default_factory=dict)
    batch: Callable[[], Batch] = text
    without: tuple[str, ...] = ()

    def build(self, attention: str | None, dropout: float) -> nn.Module:
        """A model with seeded random weights; `attention` is `sdpa` or `eager`, None for the model's own."""
        config = transformers.CONFIG_MAPPING[self.name](**self.settings)
        _set_dropout(config, dropout)
        made = getattr(transformers, self.task)
        kwargs = {} if attention is None else {"attn_implementation": attention}
        return (
            made.from_config(config, **kwargs) if self.task.startswith("Auto") else made._from_config(config, **kwargs)
        )


CAUSAL, MASKED, SEQ2SEQ = "AutoModelForCausalLM", "AutoModelForMaskedLM", "AutoModelForSeq2SeqLM"
IMAGES = "AutoModelForImageClassification"

SPECS: tuple[Spec, ...] = (
    Spec("bert", MASKED, BASE),
    Spec("llama", CAUSAL, DECODER),
    Spec("gpt2", CAUSAL, {**BASE, **GPT}),
    Spec("mistral", CAUSAL, {**DECODER, "sliding_window": 6}),
    Spec("opt", CAUSAL, {**BASE, "ffn_dim": 48, "word_embed_proj_dim": 32}),
    Spec("gemma2", CAUSAL, {**DECODER, "sliding_window": 6}),
    Spec("qwen2", CAUSAL, DECODER),
    Spec("bloom", CAUSAL, {**BASE, "n_layer": 2, "n_head": 4}),
    Spec("mamba", CAUSAL, {**BASE, "state_size": 4, "time_step_rank": 4}),
    Spec("t5", SEQ2SEQ, {**BASE, **T5, "decoder_start_token_id": 0}, sequence_to_sequence),
    Spec(
        "deberta-v2",
        MASKED,
        {**BASE, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8},
    ),
    Spec("longformer", MASKED, {**BASE, "attention_window": [4, 4]}),
    Spec(
        "big_bird",
        MASKED,
        {
            **BASE,
            "attention_type": "block_sparse",
            "block_size": 2,
            "num_random_blocks": 1,
            "max_position_embeddings": 64,
        },
        lambda: text(length=24),
        without=("bf16",),  # its scatter mixes dtypes: RuntimeError without whynan too
    ),
    Spec("xlnet", "XLNetLMHeadModel", {**BARE, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48}),
    Spec(
        "gpt_neo",
        CAUSAL,
        {
            **BASE,
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 6,
        },
    ),
    Spec("albert", MASKED, {**BASE, "embedding_size": 16}),
    Spec("distilbert", MASKED, {**BASE, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}),
    Spec("electra", MASKED, {**BASE, "embedding_size": 16}),
    Spec("roberta", MASKED, BASE),
    Spec("camembert", CAUSAL, {**BASE, "is_decoder": True}),
    Spec("gpt_neox", CAUSAL, BASE),
    Spec("gptj", CAUSAL, {**BASE, **GPT, "rotary_dim": 4}),
    Spec("falcon", CAUSAL, {**BASE, "alibi": True, "new_decoder_architecture": False}),
    Spec("phi", CAUSAL, {**DECODER, "partial_rotary_factor": 0.5}),
    Spec("phi3", CAUSAL, DECODER),
    Spec("mpt", CAUSAL, {**BASE, "d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 64}),
    Spec("bart", SEQ2SEQ, {**BASE, **BART}, sequence_to_sequence),
    Spec("pegasus", SEQ2SEQ, {**BASE, **BART}, sequence_to_sequence),
    Spec("marian", SEQ2SEQ, {**BASE, **BART, "decoder_vocab_size": VOCABULARY}, sequence_to_sequence),
    Spec("mbart", SEQ2SEQ, {**BASE, **BART}, sequence_to_sequence),
    Spec(
        "funnel",
        MASKED,
        {
            **BARE,
            "block_sizes": [1, 1],
            "d_model": 32,
            "n_head": 4,
            "d_head": 8,
            "d_inner": 48,
            "num_decoder_layers": 1,
        },
    ),
    Spec("convbert", MASKED, {**BASE, "embedding_size": 16, "conv_kernel_size": 3}),
    Spec("squeezebert", MASKED, {**BASE, "embedding_size": 32}),
    Spec(
        "mobilebert",
        MASKED,
        {
            **BASE,
            "embedding_size": 16,
            "intra_bottleneck_size": 16,
            "true_hidden_size": 16,
            "num_feedforward_networks": 1,
        },
    ),
    Spec("vit", IMAGES, VIT, image),
    Spec("deit", "DeiTForImageClassification", VIT, image),
    Spec(
        "swin",
        IMAGES,
        {
            "image_size": 16,
            "patch_size": 2,
            "embed_dim": 16,
            "depths": [1, 1],
            "num_heads": [2, 4],
            "window_size": 2,
            "num_labels": 4,
        },
        image,
    ),
    Spec(
        "convnext",
        IMAGES,
        {"num_channels": 3, "hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2, "num_labels": 4},
        image,
    ),
    Spec(
        "resnet",
        IMAGES,
        {
            "embedding_size": 8,
            "hidden_sizes": [8, 16],
            "depths": [1, 1],
            "layer_type": "basic",
            "num_labels": 4,
        },
        large_image,
    ),
    Spec("wav2vec2", "AutoModelForCTC", AUDIO, audio),
    Spec("hubert", "AutoModelForCTC", AUDIO, audio),
    Spec(
        "clip",
        "CLIPModel",
        {
            "text_config": {**BASE, "projection_dim": 16},
            "vision_config": {**VIT, "projection_dim": 16},
            "projection_dim": 16,
        },
        pairs,
    ),
    Spec("gemma", CAUSAL, DECODER),
    Spec(
        "qwen2_moe",
        CAUSAL,
        {
            **DECODER,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "shared_expert_intermediate_size": 16,
            "output_router_logits": True,
        },
    ),
    Spec(
        "mixtral", CAUSAL, {**DECODER, "num_local_experts": 4, "num_experts_per_tok": 2, "output_router_logits": True}
    ),
    Spec("cohere", CAUSAL, DECODER),
    Spec("stablelm", CAUSAL, DECODER),
    Spec("starcoder2", CAUSAL, DECODER),
    Spec("olmo", CAUSAL, DECODER),
    Spec("rwkv", CAUSAL, {**BASE, "attention_hidden_size": 32, "context_length": 64}, unmasked),
    Spec("fnet", MASKED, {**BASE, "tpu_short_seq_length": LENGTH}, unmasked),
    Spec("nystromformer", MASKED, {**BASE, "num_landmarks": LENGTH, "segment_means_seq_len": LENGTH}),
    Spec(
        "reformer",
        "AutoModelForMaskedLM",
        {
            **BASE,
            "attn_layers": ["local", "lsh"],
            "local_attn_chunk_length": 4,
            "lsh_attn_chunk_length": 4,
            "num_buckets": 4,
            "axial_pos_shape": (3, 4),
            "axial_pos_embds_dim": (8, 24),
            "attention_head_size": 8,
            "feed_forward_size": 48,
            "is_decoder": False,
            "num_hashes": 1,
            "hash_seed": 0,
        },
    ),
    Spec("xlm", "XLMWithLMHeadModel", {**BASE, "emb_dim": 32, "n_layers": 2, "n_heads": 4}),
)
NAMES = tuple(s.name for s in SPECS)
BY_NAME = {s.name: s for s in SPECS}


def _set_dropout(config: Any, probability: float) -> None:
    """Set every dropout, layer drop and stochastic depth rate of a configuration and what is nested in it."""
    for name, value in list(vars(config).items()):
        if isinstance(value, transformers.PretrainedConfig):
            _set_dropout(value, probability)
        elif "drop" in name and isinstance(value, (int, float)) and not isinstance(value, bool):
            with contextlib.suppress(StrictDataclassFieldValidationError):  # MPT's is an integer
                setattr(config, name, probability)
