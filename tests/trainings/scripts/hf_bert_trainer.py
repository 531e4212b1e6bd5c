"""BERT classified with transformers' Trainer; its callback keeps the time."""

import time

import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)
from truth import Truth, planned

set_seed(7)


class Sentences(Dataset):
    def __init__(self, count):
        generator = torch.Generator().manual_seed(3)
        self.ids = torch.randint(5, 400, (count, 32), generator=generator)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        ids = self.ids[index]
        return {"input_ids": ids, "labels": int(ids[0] > 200)}


config = BertConfig(
    vocab_size=400,
    hidden_size=192,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=512,
    max_position_embeddings=64,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
model = BertForSequenceClassification(config)
truth = Truth(model=model)


class Clock(TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        self.start = time.perf_counter()
        self.lr = kwargs["optimizer"].param_groups[0]["lr"]

    def on_optimizer_step(self, args, state, control, **kwargs):
        truth.took("optimizer", time.perf_counter() - self.start)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            truth.step(losses.pop(), lr=self.lr, norm=logs["grad_norm"])


losses = []


class TimedTrainer(Trainer):
    def compute_loss(self, model, inputs, **kwargs):
        with truth.timed("forward"):
            loss = super().compute_loss(model, inputs, **kwargs)
        losses.append(loss.item())
        return loss


args = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=8,
    max_steps=planned(14),
    learning_rate=5e-4,
    warmup_steps=3,
    logging_steps=1,
    logging_nan_inf_filter=False,
    report_to=[],
    save_strategy="no",
    use_cpu=True,
    disable_tqdm=True,
)
trainer = TimedTrainer(model=model, args=args, train_dataset=Sentences(4096), callbacks=[Clock()])
trainer.train()
truth.finish(model)
