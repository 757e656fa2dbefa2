"""Training of the edge policies.

Networks, imitation, policy gradients, export, and adapters for others' learners.
"""
