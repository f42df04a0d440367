"""PyTorch with its own cache off: matrix products, a little training, and tensors of changing sizes."""
import torch
import torch.nn.functional as F
import job

torch.use_deterministic_algorithms(True)
torch.manual_seed(0)
g = torch.Generator(device="cuda").manual_seed(1)


def whole(*shape):
    return torch.randint(-3, 4, shape, generator=g, device="cuda").float()


total = torch.zeros(64, 64, device="cuda")
for i in range(300):
    n = 64 + 37 * (i % 29)
    a, b = whole(64, n), whole(n, 64)
    total += (a @ b).relu() - (a.sum(1, keepdim=True) + b.sum(0, keepdim=True))
    total.remainder_(1009)

w = torch.nn.Parameter(torch.randn(256, 64, generator=g, device="cuda"))
optimizer = torch.optim.SGD([w], lr=0.01, momentum=0.9)
for i in range(50):
    x = torch.randn(32 + i, 256, generator=g, device="cuda")
    loss = F.mse_loss(x @ w, x[:, :64])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
del a, b, x, loss, optimizer
torch.cuda.synchronize()
if job.leak:
    for _ in range(job.COUNT):
        job.lose(torch.empty(job.BYTES, dtype=torch.uint8, device="cuda"))
job.result("torch", total.cpu().numpy(), w.detach().cpu().numpy())
