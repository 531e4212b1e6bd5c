"""A recipe as torchtune has them: a class with setup, train and a step that counts tokens."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import Truth, planned


class Recipe:
    def __init__(self, cfg):
        self._cfg = cfg
        self.global_step = 0

    def setup(self):
        torch.manual_seed(self._cfg["seed"])
        self._model = nn.Sequential(
            nn.Embedding(600, 256), nn.Linear(256, 1024), nn.SiLU(), nn.Linear(1024, 600)
        )
        self._truth = Truth(_model=self._model)
        self._optimizer = torch.optim.AdamW(
            self._model.parameters(), lr=self._cfg["lr"], fused=True
        )
        self._loss_fn = nn.CrossEntropyLoss(reduction="sum")
        data = TensorDataset(torch.randint(0, 600, (960, 16)))
        self._dataloader = DataLoader(data, batch_size=4, shuffle=True)
        self._gradient_accumulation_steps = 2

    def train(self):
        running_loss, num_tokens = 0.0, 0
        while self.global_step < self._cfg["steps"]:
            for idx, (tokens,) in enumerate(self._dataloader):
                num_tokens += tokens.numel()
                with self._truth.timed("forward"):
                    logits = self._model(tokens)
                current_loss = self._loss_fn(logits.flatten(0, 1), tokens.flatten())
                running_loss += current_loss.item()
                with self._truth.timed("backward"):
                    current_loss.backward()
                if (idx + 1) % self._gradient_accumulation_steps:
                    continue
                for p in self._model.parameters():  # the mean over all tokens of the step
                    p.grad.div_(num_tokens)
                norm = nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
                with self._truth.timed("optimizer"):
                    self._optimizer.step()
                self._optimizer.zero_grad(set_to_none=True)
                lr = self._optimizer.param_groups[0]["lr"]
                mean = running_loss / self._gradient_accumulation_steps
                self._truth.step(mean, lr=lr, norm=norm.item())
                running_loss, num_tokens = 0.0, 0
                self.global_step += 1
                if self.global_step == self._cfg["steps"]:
                    break

    def cleanup(self):
        self._truth.finish(self._model)


def recipe_main(cfg):
    recipe = Recipe(cfg)
    recipe.setup()
    recipe.train()
    recipe.cleanup()


if __name__ == "__main__":
    recipe_main({"seed": 47, "lr": 1e-3, "steps": planned(14)})
