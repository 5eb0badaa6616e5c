import torch
import torch.nn as nn


class Conv(nn.Module):
    """Convolution, batch norm and activation."""

    def __init__(self, c1, c2, k=1, g=1, act=True):
        super().__init__()
        self.conv = nn.Conv2d(c1, c2, k, 1, k // 2, groups=g, bias=False)
        self.bn = nn.BatchNorm2d(c2)
        self.act = nn.SiLU() if act else nn.Identity()

    def forward(self, x):
        return self.act(self.bn(self.conv(x)))


class Attention(nn.Module):
    def __init__(self, dim, num_heads=4):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = dim // num_heads
        self.scale = self.head_dim**-0.5
        self.qkv = Conv(dim, dim * 3, act=False)
        self.proj = Conv(dim, dim, act=False)
        self.pe = Conv(dim, dim, 3, g=dim, act=False)

    def forward(self, x):
        B, C, H, W = x.shape
        qkv = self.qkv(x).view(B, self.num_heads, self.head_dim * 3, H * W)
        q, k, v = qkv.split([self.head_dim, self.head_dim, self.head_dim], dim=2)

        attn = (q * self.scale).transpose(-2, -1) @ k
        attn = attn.softmax(dim=-1)
        x = (v @ attn.transpose(-2, -1)).view(B, C, H, W) + self.pe(v.reshape(B, C, H, W))
        return self.proj(x)


def trained_block():
    """A block whose norm has learnt large gains."""
    torch.manual_seed(0)
    block = Attention(64)
    nn.init.constant_(block.qkv.bn.weight, 120.0)
    return block.eval().half()


@torch.no_grad()
def main():
    block = trained_block()
    features = torch.randn(1, 64, 6, 6).half()
    return block(features)


if __name__ == "__main__":
    out = main()
    print("output range", out.min().item(), out.max().item())
