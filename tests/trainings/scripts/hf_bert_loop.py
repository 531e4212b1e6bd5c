"""BERT fine-tuned without Trainer: DataLoader, linear schedule, evaluation after each epoch."""

import torch
from torch.utils.data import DataLoader, TensorDataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    get_linear_schedule_with_warmup,
)
from truth import Truth, planned

torch.manual_seed(11)
ids = torch.randint(5, 400, (56, 40))
labels = (ids[:, 0] > 200).long()
train_loader = DataLoader(TensorDataset(ids, labels), batch_size=8, shuffle=True)
val_loader = DataLoader(TensorDataset(ids[:16], labels[:16]), batch_size=8)

config = BertConfig(
    vocab_size=400,
    hidden_size=192,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=512,
    max_position_embeddings=64,
)
model = BertForSequenceClassification(config)
truth = Truth(model=model)
epochs = max(1, planned(14) // len(train_loader))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, eps=1e-8)
scheduler = get_linear_schedule_with_warmup(optimizer, 2, 5000)

for epoch in range(epochs):
    model.train()
    for input_ids, target in train_loader:
        optimizer.zero_grad()
        with truth.timed("forward"):
            output = model(input_ids, labels=target)
        with truth.timed("backward"):
            output.loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        lr = optimizer.param_groups[0]["lr"]
        with truth.timed("optimizer"):
            optimizer.step()
        scheduler.step()
        truth.step(output.loss.item(), lr=lr, norm=norm.item())

    model.eval()
    correct = 0
    with torch.no_grad(), truth.timed("evaluation"):
        for input_ids, target in val_loader:
            correct += (model(input_ids).logits.argmax(-1) == target).sum().item()
    print(f"epoch {epoch}: accuracy {correct / 16:.2f}")

truth.finish(model)
