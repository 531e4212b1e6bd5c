import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 32, 4, stride=4)
        self.project = nn.Linear(32 * 8 * 8, 64)
        self.classify = nn.Linear(64, 10)

    def forward(self, images):
        maps = F.relu(self.conv(images))
        embedding = self.project(maps.flatten(1))
        return maps, embedding, self.classify(embedding)


def gather_metrics(maps, embedding, labels):
    mine = {
        "maps": maps.detach().tolist(),
        "embedding": embedding.detach(),
        "labels": labels.tolist(),
    }
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    vectors = torch.cat([entry["embedding"] for entry in everyone])
    return {"spread": vectors.std(0).mean().item(), "count": len(vectors)}


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    model = DDP(Encoder())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(rank + 1)
    prototypes = torch.randn(10, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    for step in range(1_000_000):
        labels = torch.randint(0, 10, (16,), generator=generator)
        images = prototypes[labels] + torch.randn(16, 3, 32, 32, generator=generator)
        maps, embedding, logits = model(images)
        loss = F.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        metrics = gather_metrics(maps, embedding, labels)
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f} spread {metrics['spread']:.3f}", flush=True)


if __name__ == "__main__":
    main()
