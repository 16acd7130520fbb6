"""Random JSON for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["3", "a", "2026-01-31T12:00:00Z", "{{ 1 }}", "$a", "%Y", "upper", "eyJhIjoxfQ=="])
)

json_values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from("abc") | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=10,
)
