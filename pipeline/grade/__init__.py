"""The grade stage: every boxed answer compared with its gold answer."""
