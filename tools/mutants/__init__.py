"""Planted bugs: small wrong changes that a person could make, each of which some test must notice.

``make mutants`` puts each into a copy of the tree, runs the tests nearest to it and then some seeds of
``hanse chaos``. A bug that nothing notices is a promise that nothing checks.
"""
