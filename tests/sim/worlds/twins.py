"""Both forms of the physics, for tests that hold for each."""

import pytest

from hanse.sim.worlds.compiled import loader
from hanse.sim.worlds.compiled.compiled_physics import CompiledPhysics
from hanse.sim.worlds.physics import WorldPhysics

needs_compiled_world = pytest.mark.skipif(
    bool(loader.LOAD_PROBLEM), reason=f"the compiled world: {loader.LOAD_PROBLEM}"
)
PHYSICS = [
    pytest.param(WorldPhysics, id="python"),
    pytest.param(CompiledPhysics, id="compiled", marks=needs_compiled_world),
]
EITHER = pytest.mark.parametrize("physics_type", PHYSICS)
Physics = WorldPhysics | CompiledPhysics
