"""ResNet-50 in plain torch: 161 parameter tensors in the order of bench/workloads/gradients.csv, 25.6 million elements.

Knows no data and no communication. The shortcut of a block comes before its three convolutions, as there.
"""
import torch
from torch import nn

BLOCKS = ((3, 1), (4, 2), (6, 2), (3, 2))  # how many, stride of the first; each group is twice as wide as the one before
WIDTH = 64  # of the first group
CLASSES = 1001
EXPANSION = 4


def convolution(inputs, outputs, kernel, stride=1):
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs))


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = width * EXPANSION
        self.shortcut = convolution(inputs, outputs, 1, stride) if inputs != outputs else nn.Identity()
        self.body = nn.Sequential(convolution(inputs, width, 1), nn.ReLU(inplace=True), convolution(width, width, 3, stride),
                                  nn.ReLU(inplace=True), convolution(width, outputs, 1))

    def forward(self, images):
        return torch.relu_(self.body(images) + self.shortcut(images))


def make_resnet50(width=WIDTH):
    """`width` other than 64 makes a network of the same shape that is thinner or wider."""
    layers, inputs = [convolution(3, width, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)], width
    for count, stride in BLOCKS:
        for number in range(count):
            layers.append(Bottleneck(inputs, width, stride if number == 0 else 1))
            inputs = width * EXPANSION
        width *= 2
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, CLASSES))
