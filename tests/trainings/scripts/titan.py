"""A pretraining loop in the style of torchtitan: a plan of parallelism, FSDP2, activation
checkpointing, gradient accumulation, a schedule with warm-up, and the norm of all ranks."""

from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.optim.lr_scheduler import LambdaLR
from truth import Truth, planned


@dataclass
class JobConfig:
    vocab: int = 256
    dim: int = 192
    layers: int = 3
    length: int = 32
    local_batch: int = 8
    accumulation: int = 2
    warmup: int = 4
    lr: float = 1e-3
    max_norm: float = 1.0
    steps: int = field(default_factory=lambda: planned(12))


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.RMSNorm(dim)
        self.attention = nn.MultiheadAttention(dim, 4, batch_first=True)
        self.w1 = nn.Linear(dim, 3 * dim, bias=False)
        self.w2 = nn.Linear(3 * dim, dim, bias=False)

    def forward(self, x):
        h = self.norm(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.w2(nn.functional.silu(self.w1(x)))


class Transformer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.tok_embeddings = nn.Embedding(config.vocab, config.dim)
        self.layers = nn.ModuleDict({str(i): Block(config.dim) for i in range(config.layers)})
        self.output = nn.Linear(config.dim, config.vocab, bias=False)

    def forward(self, tokens):
        h = self.tok_embeddings(tokens)
        for layer in self.layers.values():
            h = layer(h)
        return self.output(h)


def parallelize(model, mesh):
    policy = MixedPrecisionPolicy(param_dtype=torch.float32, reduce_dtype=torch.float32)
    for name, layer in model.layers.named_children():
        model.layers.register_module(name, checkpoint_wrapper(layer))
    for layer in model.layers.values():
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)


class Trainer:
    def __init__(self, config):
        self.config, self.step = config, 0
        dist.init_process_group("gloo")
        mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp_shard",))
        torch.manual_seed(0)
        self.model = Transformer(config)
        self.truth = Truth(model=self.model)
        parallelize(self.model, mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config.lr, foreach=True)
        self.schedule = LambdaLR(self.optimizer, lambda n: min(1.0, (n + 1) / config.warmup))
        torch.manual_seed(1 + dist.get_rank())

    def batches(self):
        shape = (self.config.local_batch, self.config.length + 1)
        while True:
            tokens = torch.randint(0, self.config.vocab, shape)
            yield tokens[:, :-1], tokens[:, 1:]

    def forward_backward(self, inputs, labels):
        with self.truth.timed("forward"):
            pred = self.model(inputs)
        loss = nn.functional.cross_entropy(pred.flatten(0, 1).float(), labels.flatten())
        loss = loss / self.config.accumulation
        with self.truth.timed("backward"):
            loss.backward()
        return loss.detach()

    def train_step(self, data):
        self.optimizer.zero_grad()
        losses = [self.forward_backward(*next(data)) for _ in range(self.config.accumulation)]
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.config.max_norm)
        lr = self.schedule.get_last_lr()[0]
        with self.truth.timed("optimizer"):
            self.optimizer.step()
        self.schedule.step()
        mean = torch.stack(losses).sum()
        self.truth.step(
            losses[-1].item() * self.config.accumulation,
            lr=lr, norm=norm.full_tensor().item(), mean_loss=mean.item(),
        )  # fmt: skip

    def train(self):
        data = self.batches()
        while self.step < self.config.steps:
            self.step += 1
            self.train_step(data)
        self.truth.finish(self.model)
        dist.destroy_process_group()


if __name__ == "__main__":
    Trainer(JobConfig()).train()
