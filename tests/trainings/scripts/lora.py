"""LoRA as PEFT does it: linear layers replaced by adapters around frozen ones."""

import math

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(16)


class LoraLinear(nn.Module):
    def __init__(self, base_layer, r=16, alpha=32):
        super().__init__()
        self.base_layer = base_layer
        self.lora_A = nn.Linear(base_layer.in_features, r, bias=False)
        self.lora_B = nn.Linear(r, base_layer.out_features, bias=False)
        self.scaling = alpha / r
        nn.init.kaiming_uniform_(self.lora_A.weight, a=math.sqrt(5))
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x):
        return self.base_layer(x) + self.lora_B(self.lora_A(x)) * self.scaling


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up_proj = nn.Linear(width, 2 * width)
        self.down_proj = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down_proj(torch.nn.functional.silu(self.up_proj(x)))


class Base(nn.Module):
    def __init__(self, width=512):
        super().__init__()
        self.layers = nn.ModuleList([Mlp(width) for _ in range(3)])
        self.norm = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, 64)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


def get_peft_model(model, targets):
    model.requires_grad_(False)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if name in targets:
                setattr(module, name, LoraLinear(child))
    return model


model = get_peft_model(Base(), {"up_proj", "down_proj"})
truth = Truth(model=model)
trainable = [p for p in model.parameters() if p.requires_grad]
print(f"trainable: {sum(p.numel() for p in trainable):,}")
optimizer = torch.optim.AdamW(trainable, lr=2e-3)
for step in range(planned(14)):
    x, y = torch.randn(48, 512), torch.randint(0, 64, (48,))
    with truth.timed("forward"):
        logits = model(x)
    loss = nn.functional.cross_entropy(logits, y)
    with truth.timed("backward"):
        loss.backward()
    norm = nn.utils.clip_grad_norm_(trainable, 0.3)
    with truth.timed("optimizer"):
        optimizer.step()
    optimizer.zero_grad()
    truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"], norm=norm.item())

truth.finish(model)
