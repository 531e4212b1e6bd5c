"""Route help desk tickets to 20 teams: a BERT from scratch with the Hugging Face Trainer."""
import math
import os
import tempfile
import time

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
DEVICE = os.environ.get("DEVICE", "cuda")
BIG = DEVICE != "cpu"
HIDDEN, LAYERS, BATCH, LENGTH = (1024, 4, 64, 128) if BIG else (64, 2, 8, 32)
TICKETS = 40000 if BIG else 2000
VOCAB, TEAMS, LIMIT = 8000, 20, 150


class Tickets(torch.utils.data.Dataset):
    """A ticket is common words with a few words of its team among them; one in ten is routed wrongly."""

    def __init__(self, n):
        g = torch.Generator().manual_seed(0)
        self.team = torch.randint(0, TEAMS, (n,), generator=g)
        self.words = torch.randint(1000, VOCAB, (n, LENGTH), generator=g)
        own = 10 + 40 * self.team[:, None] + torch.randint(0, 40, (n, LENGTH), generator=g)
        self.words = torch.where(torch.rand(n, LENGTH, generator=g) < 0.1, own, self.words)
        wrong = torch.rand(n, generator=g) < 0.1
        self.team = torch.where(wrong, torch.randint(0, TEAMS, (n,), generator=g), self.team)

    def __len__(self):
        return len(self.team)

    def __getitem__(self, i):
        return {"input_ids": self.words[i], "labels": self.team[i]}


class Progress(TrainerCallback):
    def on_train_begin(self, args, state, control, **kwargs):
        self.start = time.time()
        print(f"step 0 loss {math.log(TEAMS):.4f} (chance)", flush=True)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "loss" in logs:
            print(f"step {state.global_step} loss {float(logs['loss']):.4f}", flush=True)

    def on_step_end(self, args, state, control, **kwargs):
        if time.time() - self.start > LIMIT:
            control.should_training_stop = True
        return control


def main():
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=VOCAB, hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HIDDEN // 64 if BIG else 4,
        intermediate_size=4 * HIDDEN, max_position_embeddings=LENGTH, num_labels=TEAMS,
    )
    with tempfile.TemporaryDirectory(prefix="helpdesk-") as folder:
        args = TrainingArguments(
            output_dir=folder, per_device_train_batch_size=BATCH, max_steps=1_000_000, learning_rate=1e-4,
            lr_scheduler_type="constant_with_warmup", warmup_steps=200, weight_decay=0.01, max_grad_norm=1.0,
            bf16=BIG, use_cpu=not BIG, dataloader_num_workers=2 if BIG else 0, dataloader_persistent_workers=BIG,
            logging_steps=20, save_strategy="no", report_to="none", disable_tqdm=True,
        )
        model = BertForSequenceClassification(config)
        Trainer(model=model, args=args, train_dataset=Tickets(TICKETS), callbacks=[Progress()]).train()


if __name__ == "__main__":
    main()
