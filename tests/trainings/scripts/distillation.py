"""A student taught by a teacher, both of one class and of different width."""

import torch
import torch.nn.functional as F
from torch import nn
from truth import Truth, planned

torch.manual_seed(18)


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.features = nn.Sequential(
            nn.Linear(256, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.classifier = nn.Linear(width, 10)

    def forward(self, x):
        return self.classifier(self.features(x))


def train_step(teacher, student, x, y, optimizer, T=2.0):
    with torch.no_grad(), truth.timed("forward"):
        teacher_logits = teacher(x)
    with truth.timed("forward"):
        student_logits = student(x)
    soft = F.kl_div(
        F.log_softmax(student_logits / T, 1),
        F.softmax(teacher_logits / T, 1),
        reduction="batchmean",
    )
    loss = 0.25 * T * T * soft + 0.75 * F.cross_entropy(student_logits, y)
    optimizer.zero_grad()
    with truth.timed("backward"):
        loss.backward()
    with truth.timed("optimizer"):
        optimizer.step()
    return loss.item()


teacher = Net(1536).eval()
student = Net(1024)
truth = Truth(teacher=teacher, student=student)
optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)
for step in range(planned(14)):
    x, y = torch.randn(64, 256), torch.randint(0, 10, (64,))
    loss = train_step(teacher, student, x, y, optimizer)
    truth.step(loss, lr=optimizer.param_groups[0]["lr"])

truth.finish(student)
