"""The Trainer of transformers fits a tiny language model, evaluates, saves and generates."""

import json
import os
import shutil

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["HF_HUB_OFFLINE"] = "1"
import torch
import transformers
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed


class Telling(TrainerCallback):
    def on_log(self, arguments, state, control, logs=None, **kwargs):
        timed = ("runtime", "per_second", "flos")
        print(json.dumps({k: float(v).hex() for k, v in logs.items() if not k.endswith(timed)}, sort_keys=True))


transformers.utils.logging.disable_progress_bar()
set_seed(5)
model = GPT2LMHeadModel(
    GPT2Config(vocab_size=17, n_positions=16, n_embd=8, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
)
rows = [{"input_ids": row, "labels": row, "attention_mask": torch.ones_like(row)} for row in torch.randint(17, (12, 8))]
arguments = TrainingArguments(
    "trainer_files",
    num_train_epochs=2,
    per_device_train_batch_size=4,
    logging_steps=1,
    report_to=[],
    use_cpu=True,
    disable_tqdm=True,
    save_strategy="no",
    eval_strategy="epoch",
    gradient_accumulation_steps=1,
    max_grad_norm=1.0,
)
trainer = Trainer(model, arguments, train_dataset=rows, eval_dataset=rows[:4], callbacks=[Telling()])
trainer.remove_callback(transformers.PrinterCallback)
trainer.train()
trainer.save_model()
print(sorted(os.listdir("trainer_files")))
model.eval()
print(
    model.generate(rows[0]["input_ids"][None, :3], max_new_tokens=5, do_sample=True, top_k=5, pad_token_id=0).tolist()
)
shutil.rmtree("trainer_files")
