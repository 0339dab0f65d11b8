"""The grade stage: comparison of every answer with its gold answer."""
