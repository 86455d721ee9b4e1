"""What the tests of models share."""


def weights(model):
    return sum(weight.numel() for weight in model.parameters())
