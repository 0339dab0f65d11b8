"""What runs hold in formats that others read."""
