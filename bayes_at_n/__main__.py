"""``python -m bayes_at_n``."""

from bayes_at_n.pipeline.cli.main import program

if __name__ == "__main__":
    program()
