"""The C library gives the buffers of connections back when these end."""

import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
    import ctypes
    from turnstile.process.memory import map_large_blocks

    NAMES = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()

    class Info(ctypes.Structure):
        _fields_ = [(name, ctypes.c_size_t) for name in NAMES]

    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = Info
    if {told}:
        map_large_blocks()
    for _ in range(3):  # connections that have ended
        bytearray(2**18)
    kept = [bytearray(2**18) for _ in range(50)]  # fill what imports have left free, more where they compiled modules
    before = libc.mallinfo2().hblks
    buffers = [bytearray(2**18) for _ in range(20)]
    print(libc.mallinfo2().hblks - before)
"""


def mapped(*, told: bool) -> int:
    """How many of twenty buffers of 256 KiB are mapped by themselves, after others were freed."""
    code = textwrap.dedent(PROGRAM.format(told=told))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="malloc of another system")
def test_buffers_are_mapped_each_by_itself() -> None:
    """Also after such buffers were freed, when glibc would take the next ones from its heap, which does not shrink."""
    if (by_itself := mapped(told=False)) == 20:
        pytest.skip("this C library never raises the threshold")
    assert by_itself == 0
    assert mapped(told=True) == 20
