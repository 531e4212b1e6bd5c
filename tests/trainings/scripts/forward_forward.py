"""The forward-forward algorithm: each layer has a loss and an optimizer of its own."""

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(72)


class Layer(nn.Linear):
    def __init__(self, inp, out):
        super().__init__(inp, out)
        self.opt = torch.optim.Adam(self.parameters(), lr=0.003)
        self.threshold = 2.0

    def forward(self, x):
        direction = x / (x.norm(2, 1, keepdim=True) + 1e-4)
        return torch.relu(nn.functional.linear(direction, self.weight, self.bias))


net = nn.ModuleList([Layer(512, 1024), Layer(1024, 1024), Layer(1024, 1024)])
truth = Truth(net=net)
for step in range(planned(14)):
    h_pos, h_neg = torch.randn(96, 512) + 0.5, torch.randn(96, 512) - 0.5
    losses, rates = {}, {}
    for i, layer in enumerate(net):
        with truth.timed("forward"):
            out_pos = layer(h_pos)
        with truth.timed("forward"):
            out_neg = layer(h_neg)
        g_pos, g_neg = out_pos.pow(2).mean(1), out_neg.pow(2).mean(1)
        loss = nn.functional.softplus(
            torch.cat([layer.threshold - g_pos, g_neg - layer.threshold])
        ).mean()
        layer.opt.zero_grad()
        with truth.timed("backward"):
            loss.backward()
        rates[f"{i}"] = layer.opt.param_groups[0]["lr"]
        with truth.timed("optimizer"):
            layer.opt.step()
        losses[f"{i}"] = loss.item()
        h_pos, h_neg = out_pos.detach(), out_neg.detach()
    truth.step(losses, lr=rates)

truth.finish(net)
