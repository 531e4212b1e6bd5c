"""Crops from satellite time series: reflectance over a season, one label for each field."""

import argparse

import torch
from torch import nn

CROPS, BANDS, DATES = 14, 8, 30


class CropNet(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.bands = nn.Linear(BANDS, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.1, batch_first=True)
        self.season = nn.TransformerEncoder(layer, 2)
        self.position = nn.Parameter(torch.randn(DATES, width) * 0.1)
        self.crop = nn.Linear(width, CROPS)

    def forward(self, fields):
        hidden = self.season(self.bands(fields) + self.position)
        return torch.softmax(self.crop(hidden.mean(1)), dim=-1)


def fields(count, generator, curves):
    crops = torch.randint(0, CROPS, (count,), generator=generator)
    shift = torch.randint(-2, 3, (count,), generator=generator)
    dates = (torch.arange(DATES) + shift[:, None]) % DATES
    season = curves[crops[:, None], dates]
    return season + 0.4 * torch.randn(count, DATES, BANDS, generator=generator), crops


@torch.no_grad()
def evaluate(model, series, crops):
    model.eval()
    right = (model(series).argmax(-1) == crops).float().mean().item()
    model.train()
    return right


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--epochs", type=int, default=200)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(15)
    generator = torch.Generator().manual_seed(15)
    curves = torch.randn(CROPS, DATES, BANDS, generator=generator).cumsum(1) * 0.3
    train_series, train_crops = fields(8_000, generator, curves)
    test = fields(500, generator, curves)
    model = CropNet()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=1e-2)
    step = 0
    for epoch in range(options.epochs):
        for pick in torch.randperm(len(train_crops)).split(32):
            loss = criterion(model(train_series[pick]), train_crops[pick])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 20 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
        print(f"epoch {epoch} accuracy {evaluate(model, *test):.3f}", flush=True)


if __name__ == "__main__":
    main()
