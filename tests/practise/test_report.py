"""What a comparison and a roofline say, from times that are made up, and the command."""

from __future__ import annotations

import json

import pytest
import torch

from torch_ops import ladder
from torch_ops.ladder import __main__ as command
from torch_ops.ladder import counters
from torch_ops.ladder.compare import Comparison, Fault
from torch_ops.ladder.measured import Measured
from torch_ops.ladder.problems import PROBLEMS
from torch_ops.ladder.roofline import Roofline
from torch_ops.ladder.source import Build
from torch_ops.ladder.start import start

MUL = {"one_a_thread": 1000.0, "grid_stride": 800.0, "vectors": 790.0, "production": 700.0}


def time(us: float) -> dict[str, float]:
    return {"median": us, "q1": us, "q3": us}


def measured(us: float | None, op="mul", steps=MUL, **options) -> Measured:
    """2^28 products at 4000 GB/s, which take 805 us."""
    numbers = {
        "read": 2 << 30,
        "written": 1 << 30,
        "operations": 1 << 28,
        "bytes_per_us": 4e6,
        "pattern": "two reads, one write",
    }
    times = {name: time(median) for name, median in steps.items()}
    rates = {"fma": 60e6, "tf32": 480e6}
    yours = us and time(us)
    return Measured(
        op, "a GPU", [[1 << 28]] * 2, **numbers | options, rates=rates, steps=times, yours=yours, kernel="my.cu"
    )


def test_text():
    found = Comparison(
        "mul", "my.cu", [], ["misaligned"], 5, ["A note."], [Build("product", 40, 24)], measured(805.0)
    )  # fmt: skip
    assert str(found) == "\n".join(
        [
            "my.cu is right: 5 kinds of operands checked.",
            "It declines operands: misaligned.",
            "A note.",
            "",
            "mul of (268435456,), (268435456,), 3221 MB; a GPU; ceiling 4000 GB/s (two reads, one write), measured in this run",
            "",
            "step              us  GB/s  of the ceiling",
            "0 one_a_thread  1000  3221           80.5%",
            "1 grid_stride    800  4027          100.7%",
            "> my.cu          805  4002          100.0%",
            "2 vectors        790  4078          101.9%",
            "6 production     700  4602          115.0%",
            "",
            "It equals step 1 grid_stride (0.6% apart).",
            "Also within 5%: 2 vectors.",
            "Next: step 6 production is 1.15 times as fast. Its idea: gpuopt::mul, see csrc/elementwise/README.md.",
            "Registers per thread: product 40.",
            "Slow, spill: the kernel product needs more than its 40 registers, and keeps 24 bytes of each thread in memory.",
        ]
    )
    assert json.loads(found.json())["measured"]["yours"]["median"] == 805.0
    assert Comparison.of_json(json.loads(found.json())) == found


@pytest.mark.parametrize(
    "us, equal, after",
    [
        (5000.0, [], "one_a_thread"),
        (1010.0, ["one_a_thread"], "grid_stride"),
        (900.0, [], "grid_stride"),
        (794.0, ["vectors", "grid_stride"], "production"),
        (702.0, ["production"], None),
        (500.0, [], None),
    ],
)
def test_where_a_kernel_stands(us, equal, after):
    found = measured(us)
    assert found.equal() == equal and found.next() == after
    said = " ".join(found.standing())
    assert ("It equals no step." in said) == (not equal)
    assert ("No later step is faster by 5%." in said) == (after is None)


def test_the_next_step_is_above_the_equal_ones():
    """A later step may be slower than an earlier one, as split_k of matmul."""
    steps = {"naive": 100.0, "coalesced": 50.0, "shared_tile": 60.0, "output_column": 40.0}
    assert measured(100.0, "matmul", steps).next() == "coalesced"
    assert measured(50.0, "matmul", steps).next() == "output_column"


def test_faults():
    faults = [Fault("wrong values", "odd", "3 of 9 values are wrong"), Fault("wrong values", "expanded", "1 of 9")]
    found = Comparison("mul", "my.py", faults, checked=4)
    assert str(found).splitlines() == [
        "my.py is wrong: wrong values, only of odd, expanded operands.",
        "- wrong values (odd operands): 3 of 9 values are wrong",
        "- wrong values (expanded operands): 1 of 9",
        "Nothing was timed, because the kernel is wrong.",
    ]
    assert not found.right


def test_arithmetic_may_be_the_limit():
    found = measured(1000.0, "matmul", {"naive": 1000.0}, operations=2 * 4096**3, read=1 << 27, written=1 << 26)
    assert found.is_bound_by_arithmetic and found.rate == 160e6
    assert found.ceiling_us == pytest.approx(2 * 4096**3 / 160e6)
    assert "160 TFLOP/s" in found.title() and "TFLOP/s" in found.lines()[0]
    assert "The limit is arithmetic" in str(Roofline(found))


def test_the_roofline(tmp_path):
    pytest.importorskip("matplotlib")
    found = Roofline(measured(1610.0))
    text = str(found)
    assert "The limit is memory: 805 us." in text
    assert text.splitlines()[-1] == "> my.cu       1610   50.0%  ####################"
    found.plot(tmp_path / "roofline.png")
    assert (tmp_path / "roofline.png").stat().st_size > 5000


@pytest.mark.skipif(torch.cuda.is_available(), reason="it is measured there")
def test_there_is_no_roofline_without_a_gpu(capsys):
    with pytest.raises(RuntimeError, match="torch sees no GPU"):
        ladder.roofline("mul")
    assert command.main(["roofline", "mul"]) == 2
    assert "torch sees no GPU" in capsys.readouterr().err


COUNTED = """==PROF== Connected
"ID","Kernel Name","gpu__time_duration.sum","dram__bytes_read.sum","dram__bytes_write.sum","{ld}","{st}"
"","","ns","byte","byte","",""
"0","set","2000","1,024","0","0","4"
"1","add","900000","{read}","4096","{used}","0"
"""


def counted(read: int, used: float) -> counters.Counters:
    ld, st = (f"smsp__sass_average_data_bytes_per_sector_mem_global_op_{name}.ratio" for name in ("ld", "st"))
    return counters.of_output(COUNTED.format(ld=ld, st=st, read=read, used=used).splitlines())


def test_counters():
    found = counted(3 << 30, 32.0)
    assert (found.read, found.loaded, found.stored) == ((3 << 30) + 1024, 32.0, None)
    assert found.reasons(measured(900.0)) == [
        "Slow, rereads: it reads 3221 MB of memory, and the problem needs 2147 MB."
    ]
    assert counted(2 << 30, 4.0).reasons(measured(900.0)) == [
        "Slow, uncoalesced: a warp's loads use 4 of the 32 bytes of each sector."
    ]
    assert counted(2 << 30, 32.0).reasons(measured(900.0)) == []
    assert counters.of_output(["==ERROR== no permission"]) is None


# ---------------------------------------------------------------- the command


def test_start(capsys):
    for op in ladder.ops():
        assert command.main(["start", op]) == 0
        text = capsys.readouterr().out
        assert text == start(op) and f"cudaError_t {op}(" in text and max(map(len, text.splitlines())) <= 100
        assert " ".join(PROBLEMS[op].exercise.split()[:3]) in text.replace("\n// ", " ")


def test_compare(tmp_path, capsys):
    kernel = tmp_path / "kernel.py"
    kernel.write_text("def transpose2d(x):\n    return x.t()\n")
    assert command.main(["compare", "transpose2d", str(kernel), "--json", str(tmp_path / "found.json")]) == 0
    assert "kernel.py is right" in capsys.readouterr().out
    assert json.loads((tmp_path / "found.json").read_text())["faults"] == []
    kernel.write_text("def transpose2d(x):\n    return x\n")
    assert command.main(["compare", "transpose2d", str(kernel)]) == 1
    assert "kernel.py is wrong: wrong shape" in capsys.readouterr().out
    assert command.main(["compare", "transpose2d", str(tmp_path / "none.cu")]) == 2
    assert "kernel must be a file that exists" in capsys.readouterr().err


def test_a_file_that_compares_while_it_is_loaded(tmp_path):
    kernel = tmp_path / "kernel.py"
    kernel.write_text(
        "from torch_ops import ladder\n\ndef reduce_sum(x):\n    return x.sum()\n\nprint(ladder.compare('reduce_sum', reduce_sum))\n"
    )
    (fault,) = ladder.compare("reduce_sum", kernel).faults
    assert fault.kind == "compile error" and "compare was called while its kernel was loaded" in fault.text
