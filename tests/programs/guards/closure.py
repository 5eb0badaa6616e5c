import torch

torch.manual_seed(0)
p = torch.tensor([2.0, 0.3], requires_grad=True)
opt = torch.optim.LBFGS([p], lr=3.0, max_iter=10)


def closure():
    opt.zero_grad()
    loss = (p[0] - 0.5) ** 2 + 5 * p[1] - torch.log(p[1])  # born
    if torch.isnan(loss):
        raise ValueError("nan loss in closure")
    loss.backward()
    return loss


for i in range(4):
    print(i, float(opt.step(closure)))
