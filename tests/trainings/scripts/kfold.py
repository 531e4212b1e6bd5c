"""Cross-validation: a model, an optimizer and an evaluation for each fold, in one process."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset
from truth import Truth, planned

FOLDS = 3
torch.manual_seed(28)
dataset = TensorDataset(torch.randn(240, 256), torch.randint(0, 5, (240,)))
fold_of = torch.arange(240) % FOLDS
truth = Truth()
passes = max(1, planned(15) // (FOLDS * 5))
scores = []

for fold in range(FOLDS):
    train = Subset(dataset, (fold_of != fold).nonzero().flatten().tolist())
    test = Subset(dataset, (fold_of == fold).nonzero().flatten().tolist())
    model = nn.Sequential(
        nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 5)
    )
    truth.meet(model=model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(passes):
        model.train()
        for x, y in DataLoader(train, batch_size=32, shuffle=True):
            optimizer.zero_grad()
            with truth.timed("forward"):
                out = model(x)
            loss = criterion(out, y)
            with truth.timed("backward"):
                loss.backward()
            with truth.timed("optimizer"):
                optimizer.step()
            truth.step(loss.item(), lr=optimizer.param_groups[0]["lr"], fold=fold)
    model.eval()
    with torch.no_grad(), truth.timed("evaluation"):
        right = sum(
            (model(x).argmax(1) == y).sum().item() for x, y in DataLoader(test, batch_size=40)
        )
    scores.append(right / len(test))
    print(f"fold {fold}: {scores[-1]:.2f}")

truth.finish(model)
