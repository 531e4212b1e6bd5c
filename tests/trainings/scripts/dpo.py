"""Direct preference optimization: a policy and a frozen reference of the same class."""

import copy

import torch
import torch.nn.functional as F
from torch import nn
from truth import Truth, planned

torch.manual_seed(17)


class LM(nn.Module):
    def __init__(self, vocab=128, width=256):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.mix = nn.GRU(width, width, batch_first=True)
        self.up = nn.Linear(width, 1024)
        self.head = nn.Linear(1024, vocab)

    def forward(self, ids):
        x, _ = self.mix(self.embed(ids))
        return self.head(torch.relu(self.up(x)))


def logps(logits, ids):
    per_token = logits[:, :-1].log_softmax(-1).gather(2, ids[:, 1:, None]).squeeze(2)
    return per_token.sum(-1)


policy = LM()
reference = copy.deepcopy(policy).eval().requires_grad_(False)
truth = Truth(policy=policy, reference=reference)
optimizer = torch.optim.RMSprop(policy.parameters(), lr=5e-5)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 6))
beta = 0.1

for step in range(planned(14)):
    ids = torch.randint(0, 128, (8, 24))  # chosen above, rejected below
    with truth.timed("forward"):
        policy_logps = logps(policy(ids), ids)
    with torch.no_grad(), truth.timed("forward"):
        ref_logps = logps(reference(ids), ids)
    pi_chosen, pi_rejected = policy_logps.chunk(2)
    ref_chosen, ref_rejected = ref_logps.chunk(2)
    margin = (pi_chosen - pi_rejected) - (ref_chosen - ref_rejected)
    loss = -F.logsigmoid(beta * margin).mean()
    optimizer.zero_grad()
    with truth.timed("backward"):
        loss.backward()
    norm = nn.utils.clip_grad_norm_(policy.parameters(), 10.0)
    lr = optimizer.param_groups[0]["lr"]
    with truth.timed("optimizer"):
        optimizer.step()
    scheduler.step()
    truth.step(loss.item(), lr=lr, norm=norm.item())

truth.finish(policy)
