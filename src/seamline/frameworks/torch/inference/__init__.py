"""A torch model on its way to other runtimes."""
