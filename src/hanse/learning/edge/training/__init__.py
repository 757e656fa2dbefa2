"""Training of the edge policies: networks, imitation, policy gradients, export, and adapters for other
learners."""
