"""A tiny GPT-2 trained by transformers.Trainer, with a loss averaged over the answer of each row."""
# step: 12
# element: [3]
# birth: invalid

import tempfile

import torch
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class AnswerTrainer(Trainer):
    """Trains on the tokens of the answers only, every row with the same weight."""

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):  # noqa: ANN001, ANN003, ANN201
        answer = inputs.pop("answer")[:, 1:]
        outputs = model(input_ids=inputs["input_ids"])
        logits, labels = outputs.logits[:, :-1], inputs["input_ids"][:, 1:]
        losses = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
        rows = (losses * answer).sum(dim=1) / answer.sum(dim=1)  # born
        loss = rows.mean()
        if model.training:
            print(self.state.global_step + 1, repr(loss.item()))
        return (loss, outputs) if return_outputs else loss


def make_rows(count: int, length: int) -> list[dict[str, torch.Tensor]]:
    tokens = torch.randint(64, (count, length))
    prompts = torch.randint(2, length, (count,))
    prompts[29] = length  # the prompt fills the whole row
    answer = (torch.arange(length) >= prompts[:, None]).float()
    return [{"input_ids": t, "answer": a} for t, a in zip(tokens, answer, strict=True)]


def main() -> None:
    torch.manual_seed(23)
    config = GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=4,
            max_steps=14,
            learning_rate=1e-3,
            report_to=[],
            use_cpu=True,
            save_strategy="no",
            disable_tqdm=True,
            remove_unused_columns=False,
            seed=7,
        )
        model = GPT2LMHeadModel(config)
        AnswerTrainer(model=model, args=arguments, train_dataset=make_rows(56, 12)).train()


if __name__ == "__main__":
    main()
