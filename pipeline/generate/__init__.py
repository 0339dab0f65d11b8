"""generate: any number of workers make the attempts that a run owes, and none of them twice."""
