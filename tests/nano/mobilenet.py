"""MobileNetV2 with the parameter names under which its ImageNet weights are published."""

from torch import nn


def block(before, after, kernel=3, stride=1, groups=1):
    convolution = nn.Conv2d(before, after, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(after), nn.ReLU6(inplace=True))


class InvertedResidual(nn.Module):
    def __init__(self, before, after, stride, expand):
        super().__init__()
        hidden = before * expand
        self.adds = stride == 1 and before == after
        layers = [block(before, hidden, kernel=1)] if expand != 1 else []
        layers += [block(hidden, hidden, stride=stride, groups=hidden)]
        layers += [nn.Conv2d(hidden, after, 1, bias=False), nn.BatchNorm2d(after)]
        self.conv = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.conv(x) if self.adds else self.conv(x)


class MobileNetV2(nn.Module):
    def __init__(self):
        super().__init__()
        layers, before = [block(3, 32, stride=2)], 32
        plan = [
            (1, 16, 1, 1),
            (6, 24, 2, 2),
            (6, 32, 3, 2),
            (6, 64, 4, 2),
            (6, 96, 3, 1),
            (6, 160, 3, 2),
            (6, 320, 1, 1),
        ]
        for expand, after, repeats, stride in plan:
            for number in range(repeats):
                layers.append(InvertedResidual(before, after, stride if number == 0 else 1, expand))
                before = after
        self.features = nn.Sequential(*layers, block(before, 1280, kernel=1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 1000))

    def forward(self, image):
        return self.classifier(self.features(image).mean((2, 3)))
