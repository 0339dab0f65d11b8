"""The score stage: outcomes and categories become numbers with intervals."""
