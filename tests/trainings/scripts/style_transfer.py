"""Style transfer after the tutorial: LBFGS on an image, through a network that is not trained."""

import torch
from torch import nn
from truth import Truth, planned

torch.manual_seed(71)
cnn = nn.Sequential(
    nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(),
    nn.AvgPool2d(2), nn.Conv2d(24, 48, 3, padding=1), nn.ReLU(),
).requires_grad_(False).eval()  # fmt: skip
truth = Truth(cnn=cnn)
content, style = torch.rand(1, 3, 64, 64), torch.rand(1, 3, 64, 64)


def gram(x):
    f = x.flatten(2).squeeze(0)
    return f @ f.T / f.numel()


with torch.no_grad(), truth.timed("evaluation"):
    content_target, style_target = cnn(content), gram(cnn(style))
input_img = content.clone().requires_grad_(True)
optimizer = torch.optim.LBFGS([input_img], max_iter=5)
for run in range(planned(12)):
    seen = []

    def closure():
        with torch.no_grad():
            input_img.clamp_(0, 1)
        optimizer.zero_grad()
        with truth.timed("forward"):
            features = cnn(input_img)
        content_score = (features - content_target).square().mean()
        loss = 1e3 * (gram(features) - style_target).square().sum() + content_score
        with truth.timed("backward"):
            loss.backward()
        seen.append(loss.item())
        return loss

    first = optimizer.step(closure)
    mean = sum(seen) / len(seen)
    truth.step(first.item(), lr=optimizer.param_groups[0]["lr"], mean_loss=mean)

truth.finish_with({"input_img": input_img.detach()})
