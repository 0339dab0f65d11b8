"""The rule grader: from a response to an answer, and from two answers to an outcome."""
