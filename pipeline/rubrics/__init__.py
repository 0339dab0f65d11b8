"""Signals of every attempt, and the categories that rubrics make of them."""
