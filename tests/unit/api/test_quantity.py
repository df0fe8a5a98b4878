"""Quantities are exact integers, whatever way they are written."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstile.api import quantity
from turnstile.api.errors import InvalidValue
from turnstile.api.quantity import MAX_INT64, MIN_INT64

RESOURCES = st.sampled_from(["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "pods", "nvidia.com/gpu"])
SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
NUMBERS = st.from_regex(r"[+-]?([0-9]{1,12}(\.[0-9]{0,12})?|\.[0-9]{1,12})", fullmatch=True)
EXPONENTS = st.builds("{}{}".format, st.sampled_from("eE"), st.integers(-40, 40))
QUANTITIES = st.builds(lambda number, suffix: number + suffix, NUMBERS, st.sampled_from(SUFFIXES) | EXPONENTS)

MALFORMED = [
    *("", " ", ".", "+", "m", "Ki", "1ki", "1K", "1kk", "1Kim", "1 Gi", "1,5", "1_000", "0x10", "--1"),
    *("1e", "1e1.5", "1e5k", "١", "NaN", "inf", "9" * 2000),
    *(True, False, None, [], float("nan"), float("inf"), 10**2000),
]


class TestValue:
    """A quantity has one exact value."""

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("0", Fraction(0)),
            ("1", Fraction(1)),
            ("+1", Fraction(1)),
            ("-1", Fraction(-1)),
            ("007", Fraction(7)),
            (".5", Fraction(1, 2)),
            ("5.", Fraction(5)),
            ("1.25", Fraction(5, 4)),
            ("1n", Fraction(1, 10**9)),
            ("1u", Fraction(1, 10**6)),
            ("1m", Fraction(1, 1000)),
            ("1k", Fraction(1000)),
            ("1M", Fraction(10**6)),
            ("1G", Fraction(10**9)),
            ("1T", Fraction(10**12)),
            ("1P", Fraction(10**15)),
            ("1E", Fraction(10**18)),
            ("1Ki", Fraction(2**10)),
            ("1Mi", Fraction(2**20)),
            ("1Gi", Fraction(2**30)),
            ("1Ti", Fraction(2**40)),
            ("1Pi", Fraction(2**50)),
            ("1Ei", Fraction(2**60)),
            ("0.5Gi", Fraction(2**29)),
            ("1e3", Fraction(1000)),
            ("1E3", Fraction(1000)),
            ("1e+3", Fraction(1000)),
            ("15e-1", Fraction(3, 2)),
            (" 2 ", Fraction(2)),
            (3, Fraction(3)),
            (-3, Fraction(-3)),
            (0.1, Fraction(1, 10)),
            (1e22, Fraction(10**22)),
        ],
    )
    def test_value(self, text: str | float, value: Fraction) -> None:
        """Each suffix, sign, fraction, exponent and JSON number means what Kubernetes says."""
        assert quantity.parse(text) == value

    @pytest.mark.parametrize(("text", "nanos"), [("0.1n", 1), ("-0.1n", -1), ("1.0000000001", 10**9 + 1), ("1e-99", 1)])
    def test_finer_than_a_billionth(self, text: str, nanos: int) -> None:
        """What is finer than a billionth goes up, away from zero."""
        assert quantity.parse(text) == Fraction(nanos, 10**9)

    @pytest.mark.parametrize(
        ("left", "right", "order"), [("1", "1000m", 0), ("1Ki", "1k", 1), ("-1", "0", -1), (1, "2", -1)]
    )
    def test_comparison(self, left: str, right: str, order: int) -> None:
        """Quantities compare by value, not by spelling."""
        assert quantity.compare(left, right) == order

    @given(NUMBERS)
    def test_decimal_text(self, number: str) -> None:
        """A plain number is the number, rounded to a billionth away from zero."""
        exact = Fraction(number)
        assert 0 <= abs(quantity.parse(number)) - abs(exact) < Fraction(1, 10**9)


class TestRefusal:
    """What is no quantity is refused with the value and the cure."""

    @pytest.mark.parametrize(
        "value",
        MALFORMED,
        ids=lambda value: str(value)[:8] if isinstance(value, str) else type(value).__name__,
    )
    def test_refused(self, value: object) -> None:
        """A malformed quantity raises InvalidValue with the field and the cure."""
        with pytest.raises(InvalidValue, match="quantity") as raised:
            quantity.parse(value)  # type: ignore[arg-type]
        assert "500m" in raised.value.cure

    def test_names_the_resource(self) -> None:
        """An amount that cannot be read names its resource and value."""
        with pytest.raises(InvalidValue) as raised:
            quantity.to_int("example.com/gpu", "two")
        assert (raised.value.field, raised.value.value) == ("example.com/gpu", "two")

    def test_a_boolean_is_no_one(self) -> None:
        """True is refused even after 1 was read: the memory of answers tells them apart."""
        assert quantity.to_int("pods", 1) == 1
        with pytest.raises(InvalidValue):
            quantity.to_int("pods", True)

    @given(st.text() | st.text("0123456789.+-eEinumkKMGTP ", max_size=12))
    def test_any_text(self, text: str) -> None:
        """Any text either has an exact value or is refused."""
        try:
            assert isinstance(quantity.parse(text), Fraction)
            assert isinstance(quantity.canonical(text), str)
        except InvalidValue:
            pass

    @pytest.mark.parametrize("text", ["1e999999999999", "1e-999999999999", "0e999999999999"])
    def test_hostile_exponent(self, text: str) -> None:
        """A huge exponent is answered at once."""
        assert quantity.to_int("memory", text) in {MAX_INT64, 1, 0}


class TestAmount:
    """An amount is milli for cpu and base units for all else."""

    @pytest.mark.parametrize(
        ("resource", "text", "amount"),
        [
            ("cpu", "1", 1000),
            ("cpu", "1500m", 1500),
            ("cpu", "0.1m", 1),
            ("cpu", "-0.1m", -1),
            ("cpu", "1E", MAX_INT64),
            ("cpu", "-1E", MIN_INT64),
            ("memory", "1Gi", 2**30),
            ("memory", "1.5", 2),
            ("memory", "-1.5", -2),
            ("memory", "100m", 1),
            ("memory", "9223372036854775807", MAX_INT64),
            ("memory", "9223372036854775808", MAX_INT64),
            ("memory", "10Ei", MAX_INT64),
            ("nvidia.com/gpu", 8, 8),
            ("nvidia.com/gpu", "-100E", MIN_INT64),
            ("pods", 2.5, 3),
        ],
    )
    def test_amount(self, resource: str, text: str | float, amount: int) -> None:
        """Fractions go away from zero and what int64 cannot hold is cut off."""
        assert quantity.to_int(resource, text) == amount

    @given(RESOURCES, QUANTITIES)
    def test_is_an_int64(self, resource: str, text: str) -> None:
        """Every amount is an int that int64 holds."""
        amount = quantity.to_int(resource, text)
        assert type(amount) is int
        assert MIN_INT64 <= amount <= MAX_INT64

    @given(RESOURCES, QUANTITIES, QUANTITIES)
    def test_monotone(self, resource: str, left: str, right: str) -> None:
        """The larger quantity never is the smaller amount."""
        if quantity.compare(left, right) <= 0:
            assert quantity.to_int(resource, left) <= quantity.to_int(resource, right)
        else:
            assert quantity.to_int(resource, left) >= quantity.to_int(resource, right)


class TestForm:
    """A quantity is written in canonical form."""

    @pytest.mark.parametrize(
        ("text", "form"),
        [
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("1.5", "1500m"),
            ("0.5", "500m"),
            ("100000", "100k"),
            ("1024Mi", "1Gi"),
            ("1536Mi", "1536Mi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("0.1Ki", "102400m"),
            ("1.1Ki", "1126400m"),
            ("0Gi", "0"),
            ("0e3", "0"),
            ("1e5", "100e3"),
            ("12e6", "12e6"),
            ("12e-1", "1200e-3"),
            ("1000E", "1000E"),
            ("1024Ei", "9223372036854775807"),
            ("-1024Ki", "-1Mi"),
            (1.5, "1500m"),
        ],
    )
    def test_canonical(self, text: str | float, form: str) -> None:
        """No fraction, and the largest suffix of the family it was written in."""
        assert quantity.canonical(text) == form

    @given(QUANTITIES)
    def test_same_value(self, text: str) -> None:
        """The canonical form has the value it was made from, and is its own canonical form."""
        form = quantity.canonical(text)
        assert quantity.parse(form) == quantity.parse(text)
        assert quantity.canonical(form) == form

    @pytest.mark.parametrize(
        ("resource", "amount", "form"),
        [
            ("cpu", 0, "0"),
            ("cpu", 1500, "1500m"),
            ("cpu", 2000, "2"),
            ("cpu", 2_000_000, "2k"),
            ("memory", 0, "0"),
            ("memory", 512, "512"),
            ("memory", 1000, "1k"),
            ("memory", 1024, "1Ki"),
            ("memory", 1_500_000, "1500k"),
            ("memory", 3 * 2**29, "1536Mi"),
            ("memory", -(2**30), "-1Gi"),
            ("ephemeral-storage", 2**40, "1Ti"),
            ("hugepages-2Mi", 2**21, "2Mi"),
            ("nvidia.com/gpu", 1024, "1024"),
            ("nvidia.com/gpu", 8000, "8k"),
        ],
    )
    def test_amount(self, resource: str, amount: int, form: str) -> None:
        """Bytes get a binary suffix where they divide by 1024, all else a decimal one."""
        assert quantity.from_int(resource, amount) == form

    @given(RESOURCES, st.integers(-MAX_INT64, MAX_INT64) | st.integers(0, 2**20).map(lambda count: count * 2**20))
    def test_round_trip(self, resource: str, amount: int) -> None:
        """An amount reads back from its quantity, which is canonical already."""
        text = quantity.from_int(resource, amount)
        assert quantity.to_int(resource, text) == amount
        assert quantity.canonical(text) == text
