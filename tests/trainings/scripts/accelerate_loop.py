"""A loop of accelerate, with its own accumulation and clipping."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from truth import Truth, planned


def main():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    set_seed(26)
    net = nn.Sequential(
        nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 8)
    )
    truth = Truth(net=net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    dataset = TensorDataset(torch.randn(640, 256), torch.randint(0, 8, (640,)))
    loader = DataLoader(dataset, batch_size=32, shuffle=True)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.2, 1.0, total_iters=10)
    model, optimizer, loader, scheduler = accelerator.prepare(net, optimizer, loader, scheduler)

    done, steps, losses, norm = 0, planned(12), [], None
    while done < steps:
        for x, y in loader:
            with accelerator.accumulate(model):
                with truth.timed("forward"):
                    out = model(x)
                loss = nn.functional.cross_entropy(out, y)
                losses.append(loss.item())
                with truth.timed("backward"):
                    accelerator.backward(loss)
                if accelerator.sync_gradients:
                    norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
                lr = optimizer.param_groups[0]["lr"]
                with truth.timed("optimizer"):
                    optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                truth.step(losses[-1], lr=lr, norm=norm.item(), mean_loss=sum(losses) / len(losses))
                losses.clear()
                done += 1
                if done == steps:
                    break
    truth.finish(net)


if __name__ == "__main__":
    main()
