"""Random nodes, constraints and resources for property tests: few names and values, so that terms meet."""

from hypothesis import strategies as st

from hanse.model.constraints import (
    NUMBER_MAX,
    NUMBER_MIN,
    AllOf,
    AnyOf,
    Compare,
    Constraint,
    Has,
    In,
    Is,
    Not,
    Value,
)
from hanse.model.resources import Resources

names = st.sampled_from(("arch", "zone", "disk_gb", "gpu_model", "_x/y.z-1", "has", "all"))
values: st.SearchStrategy[Value] = st.one_of(
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from((NUMBER_MIN, NUMBER_MAX)),
    st.sampled_from(
        ("", "a", "b", "1", "true", "it's", 'a "b" \\', "line\nbreak\t\0", "é\u202e", "\U0001f4a9\U000e0001")
    ),
)
nodes = st.dictionaries(names, values, max_size=5)
leaves: st.SearchStrategy[Constraint] = st.one_of(
    st.builds(Is, names, values),
    st.builds(In, names, st.lists(values, min_size=1, max_size=4).map(tuple)),
    st.builds(Has, names),
    st.builds(
        Compare,
        names,
        st.sampled_from(("<", "<=", ">", ">=")),
        st.integers(-4, 4) | st.sampled_from((NUMBER_MIN, NUMBER_MAX)),
    ),
)


def _deeper(inner: st.SearchStrategy[Constraint]) -> st.SearchStrategy[Constraint]:
    several = st.lists(inner, max_size=4).map(tuple)
    return st.one_of(st.builds(Not, inner), st.builds(AllOf, several), st.builds(AnyOf, several))


constraints: st.SearchStrategy[Constraint] = st.recursive(leaves, _deeper, max_leaves=12)

amounts = st.integers(0, 5)
resources = st.builds(
    Resources,
    amounts,
    amounts,
    amounts,
    st.dictionaries(st.sampled_from(("fpga", "licence", "tpu")), st.integers(1, 5)).map(
        lambda kinds: tuple(sorted(kinds.items()))
    ),
)
