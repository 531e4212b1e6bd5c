"""A small GPT-2 by transformers' Trainer with accumulation, evaluation and checkpoints on the way."""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)
from truth import Truth, planned

set_seed(81)


class Tokens(Dataset):
    def __init__(self, count):
        generator = torch.Generator().manual_seed(4)
        self.ids = torch.randint(5, 300, (count, 32), generator=generator)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index], "labels": self.ids[index]}


model = GPT2LMHeadModel(
    GPT2Config(
        vocab_size=300, n_positions=64, n_embd=192, n_layer=3, n_head=4,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1, eos_token_id=2,
    )
)  # fmt: skip
truth = Truth(model=model)


class Log(TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, **kwargs):
        self.lr = kwargs["optimizer"].param_groups[0]["lr"]

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            truth.step(
                logs["loss"], lr=self.lr, norm=logs["grad_norm"], number=state.global_step - 1
            )


with tempfile.TemporaryDirectory() as folder:
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=folder,
            max_steps=planned(12),
            per_device_train_batch_size=4,
            per_device_eval_batch_size=4,
            gradient_accumulation_steps=2,
            eval_strategy="steps",
            eval_steps=4,
            save_strategy="steps",
            save_steps=6,
            save_total_limit=1,
            logging_steps=1,
            learning_rate=1e-3,
            warmup_steps=4,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            dataloader_num_workers=0,
        ),
        train_dataset=Tokens(256),
        eval_dataset=Tokens(16),
        callbacks=[Log()],
    )
    trainer.train()
truth.finish(model)
