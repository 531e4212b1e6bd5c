"""Traces its model in the midst of its training, and prints which operations the trace has."""

import torch

model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(12):
    optimizer.zero_grad()
    model(torch.randn(3, 4)).sum().backward()
    optimizer.step()
model.eval()
with torch.no_grad():
    model(torch.randn(3, 4))
    traced = torch.jit.trace(model, torch.randn(3, 4))
    model(torch.randn(3, 4))
print(", ".join(sorted({node.kind() for node in traced.inlined_graph.nodes()})))
