"""trajectory: how steadily a score follows a training, by protocol (MaP, Wang et al. 2025)."""
