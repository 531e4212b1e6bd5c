"""Trains by way of the framework that its argument names, and ends.

One line of JSON per step says what the framework itself reports of it; the last one has a digest of
the final parameters. Nothing is downloaded: models and data are made here.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset, TensorDataset

STEPS, PARTS = 4, 2
SAMPLES, LENGTH, WORDS, WIDTH = 4, 8, 32, 16


def tell(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def end(model: nn.Module) -> None:
    """Print what the parameters have become, each bit of them, and the names of the parts."""
    digest = hashlib.sha256()
    for name, parameter in model.named_parameters():
        digest.update(name.encode() + parameter.detach().contiguous().numpy().tobytes())
    names = {name: part for name, part in model.named_modules() if name}
    used = [
        name
        for name, part in names.items()
        if next(part.parameters(recurse=False), None) is not None
    ]
    tell(digest=digest.hexdigest(), root=type(model).__name__, parts=list(names), used=used)


def draw() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(WORDS, (STEPS * PARTS * SAMPLES, LENGTH), generator=generator)


class Texts(Dataset[dict[str, Tensor]]):
    """Tokens and labels, some of which are ignored."""

    def __init__(self) -> None:
        self.tokens = draw()

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        tokens = self.tokens[number]
        labels = tokens.clone()
        labels[: 2 + number % 4] = -100
        return {"input_ids": tokens, "labels": labels}


def gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=WORDS, n_positions=LENGTH, n_embd=WIDTH, n_layer=2, n_head=2)
    )


def trainer(parts: int = PARTS) -> None:
    from transformers import Trainer, TrainerCallback, TrainingArguments

    class Told(TrainerCallback):  # type: ignore[misc]
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if "loss" in logs:
                facts = {"loss": logs["loss"], "grad_norm": logs["grad_norm"]}
                facts |= {"micro_batches": parts, "samples": parts * SAMPLES}
                tell(**facts, tokens=parts * SAMPLES * LENGTH, lr=logs["learning_rate"])

    model = gpt2()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=STEPS,
            per_device_train_batch_size=SAMPLES,
            gradient_accumulation_steps=parts,
            logging_steps=1,
            learning_rate=0.01,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        )
        Trainer(model, arguments, train_dataset=Texts(), callbacks=[Told()]).train()
    end(model)


def trainer_whole() -> None:
    trainer(parts=1)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.body = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.body(self.embed(tokens)))


def pairs() -> DataLoader[tuple[Tensor, ...]]:
    tokens = draw()
    return DataLoader(TensorDataset(tokens, tokens.flip(1)), batch_size=SAMPLES)


def accelerated(precision: str = "no") -> None:
    from accelerate import Accelerator

    torch.manual_seed(0)
    accelerator = Accelerator(
        gradient_accumulation_steps=PARTS, cpu=True, mixed_precision=precision
    )
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, pairs(), scheduler)
    losses: list[float] = []
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = cross_entropy(model(x).flatten(0, 1), y.flatten())
            losses.append(loss.item())
            accelerator.backward(loss)
            norm = None
            if accelerator.sync_gradients:
                norm = accelerator.clip_grad_norm_(model.parameters(), 1.0).item()
            lr = optimizer.param_groups[0]["lr"]
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        if norm is not None:
            facts = {"loss": sum(losses) / PARTS, "lr": lr, "grad_norm": norm}
            facts |= {"micro_batches": PARTS, "samples": PARTS * SAMPLES}
            tell(**facts, tokens=PARTS * SAMPLES * LENGTH)
            losses.clear()
    end(accelerator.unwrap_model(model))


def accelerated_bf16() -> None:
    accelerated("bf16")


def lit(parts: int = PARTS) -> None:
    import lightning

    class Lit(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()
            self.losses: list[float] = []

        def forward(self, tokens: Tensor) -> Tensor:
            return self.net(tokens)

        def training_step(self, batch: Any, _: int) -> Tensor:
            x, y = batch
            loss = cross_entropy(self(x).flatten(0, 1), y.flatten())
            self.log("loss", loss)
            return loss

        def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
            self.losses.append(self.trainer.callback_metrics["loss"].item())
            if len(self.losses) == parts:
                facts = {"loss": sum(self.losses) / parts, "lr": 0.01, "micro_batches": parts}
                tell(**facts, samples=parts * SAMPLES, tokens=parts * SAMPLES * LENGTH)
                self.losses.clear()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=0.01)

    torch.manual_seed(0)
    model = Lit()
    lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        devices=1,
        accumulate_grad_batches=parts,
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(model, pairs())
    end(model)


def lit_whole() -> None:
    lit(parts=1)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
