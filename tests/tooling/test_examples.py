"""The demos: their tables and files, and the mathematics that they use."""

import io
import math
import sys
import types
import wave

import numpy
import pytest
import torch
from rich.console import Console
from torch.nn import functional

import torch_ops
from examples import __main__ as command
from examples import (
    _photographs,
    _report,
    channel_statistics,
    digits,
    filtering,
    graph_convolutions,
    integral_image,
    message_passing,
    similarity,
    sound_level,
    triangles,
    upsampling,
    white_balance,
)


def tinted():
    generator = torch.Generator().manual_seed(0)
    return torch.rand(3, 16, 24, generator=generator) * torch.tensor([0.9, 0.5, 0.3]).view(3, 1, 1)


def test_srgb_there_and_back():
    values = torch.linspace(0, 1, 256)
    torch.testing.assert_close(white_balance.to_srgb(white_balance.to_linear(values)), values, atol=1e-5, rtol=0)
    assert white_balance.to_linear(torch.tensor(0.5)).item() == pytest.approx(0.2140, abs=1e-4)


def test_photographs_ship_with_scikit_learn():
    for name in _photographs.NAMES:
        image = _photographs.load(name, "cpu")
        assert image.shape == (3, 427, 640) and image.dtype == torch.float32
        assert 0 <= image.min() and image.max() <= 1 and image.std() > 0.05


def test_gray_world_makes_the_means_equal():
    balanced = tinted() * white_balance.gray_world(tinted())
    torch.testing.assert_close(balanced.mean((1, 2)), tinted().mean().expand(3))


def test_training_finds_the_gray_world_gain():
    model = white_balance.WhiteBalance()
    losses = white_balance.train(model, tinted())
    assert losses[-1] < 1e-6 * losses[0]
    torch.testing.assert_close(model.gain.detach(), white_balance.gray_world(tinted()), rtol=1e-3, atol=1e-3)


def test_stretching_maps_each_channel_to_zero_to_one():
    image = 0.2 + 0.5 * tinted()
    stretched = channel_statistics.stretch(image, *channel_statistics.contrast_range(image))
    assert stretched.amin((1, 2)).tolist() == [0, 0, 0] and stretched.amax((1, 2)).tolist() == [1, 1, 1]
    spans = stretched.flatten(1).std(1) / image.flatten(1).std(1)
    torch.testing.assert_close(spans, 1 / (image.amax((1, 2)) - image.amin((1, 2))))


def test_stretching_by_a_narrower_range_stays_in_zero_to_one():
    stretched = channel_statistics.stretch(tinted(), torch.tensor(0.2), torch.tensor(0.25))
    assert stretched.min() == 0 and stretched.max() == 1


def test_a_channel_without_contrast_stays_finite():
    flat = torch.full((3, 64, 64), 0.5)
    assert channel_statistics.stretch(flat, *channel_statistics.contrast_range(flat)).isfinite().all()


def test_one_pixel_hardly_moves_the_range_of_blocks():
    size = channel_statistics.BLOCK
    image = torch.full((3, 2 * size + 5, 3 * size + 1), 0.5)
    image[:, 0, 0] = 1
    means = channel_statistics.block_means(image)
    torch.testing.assert_close(means, functional.avg_pool2d(image, size))
    low, high = channel_statistics.contrast_range(means)
    assert (low == 0.5).all() and torch.allclose(high, torch.tensor(0.5 + 0.5 / size**2))


def test_a_photograph_is_described_by_its_statistics():
    lines = channel_statistics.describe(torch.linspace(0.25, 0.75, 3 * 64 * 64).view(3, 64, 64)).splitlines()
    assert [line.split()[0] for line in lines] == ["mean", "red", "green", "blue"]
    assert lines[2].split()[1:4] == ["0.50", "0.42", "0.58"]


def test_the_digits_are_all_there():
    parts = digits.load("cpu")
    assert sum(len(part.labels) for part in parts) == 1797
    for part in parts:
        assert part.images.shape[1:] == (8, 8) and part.images.min() == 0 and part.images.max() == 1
        assert part.labels.unique().tolist() == list(range(10))


@pytest.mark.parametrize("reductions", [digits.GPUOPT, digits.PYTORCH], ids=["gpuopt", "PyTorch"])
@pytest.mark.parametrize("scale", [1, 1000])  # exp(1000) overflows float64
def test_the_loss_is_cross_entropy(reductions, scale):
    generator = torch.Generator().manual_seed(0)
    logits = (scale * torch.randn(32, 10, generator=generator, dtype=torch.float64)).requires_grad_()
    labels = torch.randint(10, (32,), generator=generator)
    loss, expected = digits.cross_entropy(reductions, logits, labels), functional.cross_entropy(logits, labels)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(torch.autograd.grad(loss, logits), torch.autograd.grad(expected, logits))


def test_training_on_digits_is_the_same_with_both_kinds_of_reductions():
    part, _ = digits.load("cpu")
    part = digits.Digits(part.images.double(), part.labels)
    models = [digits.untrained(reductions, part.images) for reductions in (digits.GPUOPT, digits.PYTORCH)]
    before = digits.accuracy(models[0], part)
    ours, theirs = (digits.train(model, part, steps=40) for model in models)
    assert ours[-5:].mean() < 0.4 * ours[0] and digits.accuracy(models[0], part) > before + 0.4
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=0)


def test_the_difference_is_the_largest_so_far():
    found = digits.difference(torch.tensor([1.0, 2.2, 4.0]), torch.tensor([1.0, 2.0, 4.0]))
    torch.testing.assert_close(found, torch.tensor([0.0, 0.1, 0.1]))


def test_an_output_copies_the_pixel_that_its_position_falls_on():
    assert upsampling.sources(7, 3, 2.5).tolist() == [0, 0, 0, 1, 1, 2, 2]
    for small in upsampling.SMALL:
        blocks = upsampling.sources(int(small * upsampling.SCALE), small, upsampling.SCALE).bincount()
        assert len(blocks) == small and set(blocks.tolist()) == {2, 3}


@pytest.mark.parametrize("scale", [2.0, upsampling.SCALE])
def test_enlarging_by_indexing_is_interpolate(scale):
    images = tinted()[None]
    assert torch.equal(upsampling.enlarged(images, scale), functional.interpolate(images, scale_factor=scale))


def test_the_sums_of_windows_are_the_gradient_of_enlarging():
    images = tinted().double().requires_grad_()
    large = upsampling.enlarged(images, upsampling.SCALE)
    weights = torch.randn(large.shape, generator=torch.Generator().manual_seed(0), dtype=large.dtype)
    (expected,) = torch.autograd.grad(large, images, weights)
    torch.testing.assert_close(upsampling.window_sums(weights, images.shape[1:], upsampling.SCALE), expected)


def test_descent_finds_the_means_of_windows():
    size, scale = (16, 23), upsampling.SCALE
    targets = functional.interpolate(tinted()[None], size=[int(n * scale) for n in size], mode="bicubic").double()
    counts = upsampling.window_sums(torch.ones_like(targets), size, scale)
    assert counts.unique().tolist() == [4, 6, 9]
    means = upsampling.window_sums(targets, size, scale) / counts
    # Pixels are float32. For float64, ATen's CPU kernel computes indices in float64, and some windows differ.
    found = upsampling.fit(torch.zeros_like(means).float(), targets.float())
    distances = torch.stack([(step.images - means).abs().max() for step in found])
    bound = distances[0] * upsampling.CONTRACTION ** torch.arange(len(found))
    assert (distances <= 1.001 * bound + 1e-6).all() and distances[-1] < upsampling.TOLERANCE
    assert found[-1].loss == pytest.approx((upsampling.enlarged(means, scale) - targets).square().mean().item())


def test_a_cut_is_made_of_whole_blocks():
    image, part = tinted(), tinted()[:, 3:10, 5:17]
    large = upsampling.enlarged(image, upsampling.SCALE)
    found, heights, widths = upsampling.cut(large, upsampling.SCALE, image.shape[1:], (3, 5), (7, 12))
    assert torch.equal(found, part.repeat_interleave(heights, 1).repeat_interleave(widths, 2))


def test_wrong_values_are_told_from_rounding():
    exact = torch.linspace(-1, 1, 10, dtype=torch.float64)
    assert upsampling.wrong(exact.float(), exact) == 0
    assert upsampling.wrong(exact.float() + torch.tensor([0.1] * 3 + [0] * 7), exact) == pytest.approx(0.3)


def test_the_mean_over_neighbours_is_the_matrix_product():
    _, graph, _ = message_passing.karate_club("cpu")
    matrix = message_passing.adjacency(graph)
    assert len(graph.sources) == 2 * 78 == matrix.sum() and torch.equal(matrix, matrix.t())
    features = torch.randn(34, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    means = message_passing.neighbour_means(features, graph)
    torch.testing.assert_close(means, matrix @ features / matrix.sum(1, keepdim=True))


def test_messages_go_from_source_to_target():
    graph = message_passing.Graph(3, torch.tensor([0, 0, 1]), torch.tensor([1, 2, 2]))
    assert message_passing.sums_of_messages(torch.tensor([1.0, 2.0, 4.0]), graph).tolist() == [0, 1, 6]
    assert message_passing.neighbour_means(torch.tensor([[8.0], [2.0], [0.0]]), graph)[1:].tolist() == [[8], [5]]


def test_opinions_settle_on_the_solution_of_the_equations():
    _, graph, sides = message_passing.karate_club("cpu")
    opinions, exact = (
        function(graph, message_passing.LEADERS) for function in (message_passing.spread, message_passing.settled)
    )
    assert opinions.shape == (message_passing.SPREADING + 1, 34) and opinions[0].count_nonzero() == 2
    torch.testing.assert_close(opinions[-1].double(), exact, atol=message_passing.TOLERANCE, rtol=0)
    assert (opinions[:, 0] == 1).all() and (opinions[:, 33] == -1).all()
    # Only member 8 is on the wrong side. He met two members of the club that he joined, and three of the other.
    assert (exact.sign() != sides).nonzero().flatten().tolist() == [8]
    # Exchanging the leaders' opinions exchanges everybody's.
    torch.testing.assert_close(message_passing.settled(graph, {0: -1.0, 33: 1.0}), -exact)


def test_similar_images_are_joined_both_ways_and_each_with_itself():
    generator = torch.Generator().manual_seed(0)
    graph = message_passing.similar(torch.randn(50, 4, generator=generator), neighbours=3)
    matrix = message_passing.adjacency(graph)
    assert torch.equal(matrix, matrix.t()) and matrix.diagonal().eq(1).all() and matrix.sum(1).min() >= 4
    assert len(graph.sources) == matrix.sum()
    line = message_passing.similar(torch.arange(5.0)[:, None] ** 2, neighbours=1)
    assert message_passing.adjacency(line).nonzero().tolist() == [
        [a, b] for a in range(5) for b in range(5) if abs(a - b) <= 1
    ]


def test_a_layer_is_trained_through_messages():
    part = message_passing.load("cpu")
    assert part.labels[part.labelled].tolist() == list(range(10)) and part.images.shape == (1797, 64)
    without, with_messages = (message_passing.train(part, rounds, steps=10) for rounds in (0, 4))
    assert with_messages[-1] > without[-1] + 0.05 > without[0] + 0.3
    assert message_passing.gradient_error(part, 3) < message_passing.GRADIENT_TOLERANCE


def test_colours_are_counted_for_each_channel():
    image = torch.stack([torch.zeros(2, 3), torch.ones(2, 3), torch.tensor([[0, 1, 2], [3, 3, 3]]) / 255])
    counts = message_passing.counted(torch.index_add, message_passing.bins(image), torch.float64)
    assert counts.shape == (3, 256) and counts.sum(1).tolist() == [6, 6, 6]
    assert counts[0, 0] == counts[1, 255] == 6 and counts[2, :4].tolist() == [1, 1, 1, 3]


def test_the_imports_of_a_package_are_read_from_its_text(tmp_path):
    package = tmp_path / "tree"
    (package / "branch").mkdir(parents=True)
    (package / "__init__.py").write_text("from . import leaf  # from tree import root\n")
    (package / "leaf.py").write_text("import os, tree.root as r\ntext = 'import tree'\n    import tree.branch\n")
    (package / "root.py").write_text("from tree.leaf import (\n    green,\n    yellow,\n)\n")
    (package / "branch" / "__init__.py").write_text("from ..root import x\nfrom tree import leaf as a, branch\n")
    modules = graph_convolutions.read(package)
    assert modules.names == ["tree", "tree.branch", "tree.leaf", "tree.root"]
    found = {(modules.names[a], modules.names[b]) for a, b in modules.imports}
    leaf, root, branch = "tree.leaf", "tree.root", "tree.branch"
    assert found == {("tree", leaf), (leaf, root), (leaf, branch), (root, leaf), (branch, root), (branch, leaf)}


def test_the_matrix_of_a_graph_is_symmetric_and_normalised():
    edges = torch.tensor([[0, 1, 1, 3], [1, 2, 0, 3]])
    matrix = graph_convolutions.normalised(4, edges).to_torch().to_dense().double()
    plain = torch.eye(4, dtype=torch.float64)
    for a, b in ((0, 1), (1, 2)):
        plain[a, b] = plain[b, a] = 1
    scale = plain.sum(1).rsqrt()
    torch.testing.assert_close(matrix, scale[:, None] * plain * scale, rtol=1e-6, atol=0)


def test_a_network_learns_from_the_imports_of_torch():
    task = graph_convolutions.load("cpu")
    assert {"distributed", "fx", "nn", "utils"} <= set(task.classes) and len(task.others) > 1000
    assert task.labels[task.labelled].bincount().tolist() == [graph_convolutions.LABELLED] * len(task.classes)
    assert not set(task.labelled.tolist()) & set(task.others.tolist())
    assert graph_convolutions.gradient_error(task) < graph_convolutions.GRADIENT_TOLERANCE
    network = graph_convolutions.untrained(task)
    accuracies = graph_convolutions.train(network, task, steps=15)
    assert accuracies[0] < 0.25 < 0.35 < accuracies[-1]
    guessed = graph_convolutions.guesses(network, task)
    shares = graph_convolutions.confusion(guessed, task)
    torch.testing.assert_close(shares.sum(1), torch.ones_like(shares[0]))
    correct = (shares.diagonal() * task.labels[task.others].bincount()).sum() / len(task.others)
    assert correct.item() == pytest.approx(accuracies[-1])


def test_random_imports_are_as_many_for_each_module():
    edges = torch.randint(30, (2, 200), generator=torch.Generator().manual_seed(1))
    other = triangles.rewired(edges, 2)
    assert not torch.equal(edges, other)
    for end, of_other in zip(edges, other):
        assert torch.equal(end.bincount(minlength=30), of_other.bincount(minlength=30))


def test_modules_that_import_each_other_are_neighbours_once():
    assert triangles.degrees(torch.tensor([[0, 1, 0], [1, 0, 2]]), 4).tolist() == [2, 1, 1, 0]


@pytest.mark.parametrize(("dtype", "stops"), [(torch.bfloat16, 256), (torch.float16, 2048)])
def test_accurate_counts_do_not_stop(dtype, stops):
    index = torch.tensor([5]).expand(10000)
    assert message_passing.counted(message_passing.ACCURATE, index, dtype)[0, 5] == torch.tensor(10000.0).to(dtype)
    assert message_passing.counted(torch.index_add, index, dtype)[0, 5] == stops


def test_sums_of_products_stop_where_each_addition_is_rounded():
    x = torch.full((100000,), 0.25).half()
    assert similarity.one_after_another(x, x) == 128 and torch_ops.dot(x, x) == 6250
    channels = tinted().flatten(1).half()
    expected = channels.double() @ channels.double().t()
    found = similarity.products(torch_ops.dot, channels)
    assert found.dtype == torch.float64 and len(found) == 6
    torch.testing.assert_close(found, expected[tuple(zip(*similarity.PAIRS))], rtol=similarity.ROUNDED_ONCE, atol=0)


def test_scaling_a_photograph_rounds_nothing():
    image = _photographs.load(_photographs.NAMES[0], "cpu").half()
    assert torch.equal((image * similarity.SCALE).double(), image.double() * similarity.SCALE)


def test_correlations_are_numpy_s():
    generator = torch.Generator().manual_seed(0)
    channels = torch.rand(3, 500, generator=generator, dtype=torch.float64)
    channels[2] -= 0.5 * channels[0]
    found = similarity.correlations(torch_ops.dot, channels)
    assert list(found) == ["red and green", "red and blue", "green and blue"] and found["red and blue"] < -0.3
    matrix = torch.corrcoef(channels)
    assert list(found.values()) == pytest.approx([matrix[0, 1].item(), matrix[0, 2].item(), matrix[1, 2].item()])


def test_cosines_with_templates_are_a_matrix_product():
    part, _ = similarity.load("cpu")
    torch.testing.assert_close(part.images.norm(dim=1), torch.ones(len(part.labels)))
    images, templates = part.images[:40].double(), similarity.class_means(part).double().requires_grad_()
    found = similarity.cosines(images, templates)
    expected = images @ functional.normalize(templates).t()
    torch.testing.assert_close(found, expected)
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(0), dtype=found.dtype)
    gradients = [torch.autograd.grad(values, templates, weights)[0] for values in (found, expected)]
    torch.testing.assert_close(*gradients)


def test_templates_are_learned():
    part, test = similarity.load("cpu")
    means = similarity.class_means(part)
    learned, losses = similarity.learn(part, means, steps=20)
    assert losses[-1] < 0.5 * losses[0] and similarity.recognised(test, learned) > similarity.recognised(test, means)


def test_the_most_and_the_least_similar_images_are_of_their_own_digit():
    part, _ = similarity.load("cpu")
    means = similarity.class_means(part)
    cosines, most, least = similarity.extremes(part, means)
    torch.testing.assert_close(cosines, similarity.cosines(part.images, means).gather(1, part.labels[:, None])[:, 0])
    assert part.labels[most].tolist() == part.labels[least].tolist() == list(range(10))
    for digit in range(10):
        assert (
            cosines[most[digit]] == cosines[part.labels == digit].max()
            and cosines[least[digit]] == cosines[part.labels == digit].min()
        )


def test_the_recording_ships_with_pygame():
    signal, rate = filtering.load("cpu")
    assert rate == 11025 and signal.shape == (78331,) and signal.dtype == torch.float32
    assert -1 <= signal.min() < -0.5 and 0.5 < signal.max() < 1 and signal.mean().abs() < 0.05


def test_a_recording_is_saved_as_it_is(tmp_path):
    signal = torch.sin(torch.arange(1000) / 20)
    filtering.save(tmp_path / "sine.wav", signal, 8000)
    with wave.open(str(tmp_path / "sine.wav"), "rb") as file:
        assert (file.getframerate(), file.getnframes()) == (8000, 1000)
        values = torch.frombuffer(bytearray(file.readframes(1000)), dtype=torch.int16)
    torch.testing.assert_close(values / 32767, signal, atol=1e-4, rtol=0)


@pytest.mark.parametrize("taps", [64, 65])
def test_filtering_is_convolution(taps):
    signal = torch.randn(1, 500, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights = torch.randn(taps, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected = torch.from_numpy(numpy.convolve(signal[0].numpy(), weights.numpy(), "same"))[None]
    for function in (filtering.filtered, filtering.with_conv1d, filtering.by_definition):
        torch.testing.assert_close(function(signal, weights), expected)


@pytest.mark.parametrize("taps", filtering.TAPS)
def test_a_low_pass_lets_through_what_is_low(taps):
    weights, rate = filtering.low_pass(taps, 1000.0, 11025), 11025
    torch.testing.assert_close(weights, weights.flip(0))
    response = torch.fft.rfft(weights, 1 << 16).abs()
    frequencies = torch.fft.rfftfreq(1 << 16, 1 / rate)
    half = filtering.TRANSITION * rate / taps / 2
    low, high = response[frequencies < 1000 - half], response[frequencies > 1000 + half]
    assert (low - 1).abs().max() < 1e-3 and high.max() < 10 ** (-filtering.STOPPED_DB / 20)
    assert response[0] == pytest.approx(1.0)


def test_energy_is_found_where_a_tone_is():
    rate = 8000
    tone = torch.sin(2 * torch.pi * 440 * torch.arange(4 * rate) / rate)
    inside = filtering.energy(tone, rate, 430, 450)
    assert filtering.energy(tone, rate, 0) == pytest.approx(inside, abs=1e-3)
    assert filtering.energy(tone, rate, 500) < inside - 70


def test_one_sample_at_a_time_is_all_at_once():
    signal = torch.randn(200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    taps = filtering.low_pass(32, 1000.0, 8000)
    expected = torch_ops.convolve(signal, taps)[:200]
    torch.testing.assert_close(filtering.streamed(signal, taps), expected)


def test_an_integral_image_holds_the_sum_above_and_to_the_left():
    image = tinted().double()
    table = integral_image.integral_image(image)
    torch.testing.assert_close(table, integral_image.with_pytorch(image))
    assert table.shape == (3, 17, 25) and (table[:, 0] == 0).all() and (table[:, :, 0] == 0).all()
    torch.testing.assert_close(table[:, 5, 7], image[:, :5, :7].sum((1, 2)))
    pixels = (255 * image).byte()
    assert torch.equal(integral_image.integral_image(pixels)[:, -1, -1], pixels.sum((1, 2)))


@pytest.mark.parametrize("radius", [0, 1, 5, 15, 40])  # windows of 40 cover the image and reach beyond all its borders
def test_a_box_blur_is_the_mean_of_each_window(radius):
    image = tinted().double()
    found = integral_image.box_blur(integral_image.integral_image(image), radius)
    windows = [
        [image[:, max(y - radius, 0) : y + radius + 1, max(x - radius, 0) : x + radius + 1] for x in range(24)]
        for y in range(16)
    ]
    expected = torch.stack([torch.stack([window.mean((1, 2)) for window in row], 1) for row in windows], 1)
    torch.testing.assert_close(found, expected)
    if radius <= 15:
        torch.testing.assert_close(integral_image.direct(image, radius), expected)


def test_each_pixel_may_have_another_radius():
    image = tinted().double()
    radii = torch.randint(6, (16, 24), generator=torch.Generator().manual_seed(0))
    found = integral_image.box_blur(integral_image.integral_image(image), radii)
    torch.testing.assert_close(found, integral_image.direct_by_radius(image, radii))
    torch.testing.assert_close(found[:, 9, 11], integral_image.direct(image, radii[9, 11].item())[:, 9, 11])


@pytest.mark.parametrize("name", _photographs.NAMES)
def test_the_focus_of_a_photograph_is_sharp(name):
    radii = integral_image.radii_around(integral_image.FOCI[name], 427, 640, "cpu")
    assert radii[integral_image.FOCI[name]] == 0 and radii.max() == radii[0, -1] == integral_image.RADII[-1]
    assert radii.unique().tolist() == list(range(integral_image.RADII[-1] + 1))


def test_a_wrong_blur_is_found():
    image = (tinted() * 255).byte().float() / 255
    tables = {
        "bytes": integral_image.integral_image((255 * image).round().byte()),
        "float32": integral_image.integral_image(image),
    }
    exact = integral_image.direct((255 * image).round().double() / 255, 3)
    assert "int64 sums" in integral_image.errors(tables, 3, exact)
    with pytest.raises(AssertionError):
        integral_image.errors(tables, 2, exact)


def test_averages_are_a_loop():
    signal = torch.randn(3000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    decay = sound_level.decays(8000, "cpu").double()
    found, expected = sound_level.averages(signal, decay), sound_level.one_after_another(signal, decay)
    torch.testing.assert_close(found, expected)
    later = sound_level.averages(signal[1000:], decay, initial=found[:, 999])
    torch.testing.assert_close(later, expected[:, 1000:])


def test_an_average_reaches_its_signal_by_the_time_constant():
    rate = 8000
    decay = sound_level.decays(rate, "cpu")
    assert decay.dtype == torch.float32 and torch.equal((1 - decay).double(), 1 - decay.double())
    levels = sound_level.averages(torch.full((rate,), 0.5, dtype=torch.float64), decay.double())
    for level, seconds in zip(levels, sound_level.TIME_CONSTANTS.values()):
        samples = int(seconds * rate)
        assert level[samples - 1].item() == pytest.approx(0.25 * (1 - math.exp(-1)), rel=1e-3)
        assert sound_level.decibels(level[samples - 1]).item() == pytest.approx(-8.01, abs=0.01)


def test_silence_has_a_level():
    assert sound_level.decibels(torch.tensor([0.0, 1e-3, 1.0])).tolist() == pytest.approx([-60, -30, 0])


@pytest.fixture
def a_report(tmp_path):
    return _report.Report("cpu", Console(width=120, file=io.StringIO()), tmp_path)


def test_a_row_holds_error_and_times_but_no_speedup_on_the_cpu(a_report):
    x, gain = tinted().half(), torch.full((3, 1, 1), 1.25).half()
    out = a_report.compare("mul", torch.mul, torch.mul, torch.mul, x, gain)
    torch.testing.assert_close(out, x * gain)
    (row,) = a_report.rows
    assert (row.op, row.shape, row.dtype) == ("mul", "(3, 16, 24) * (3, 1, 1)", "f16")
    assert 1e-5 < row.error < 1e-3 and row.torch_us > 0 and row.gpuopt_us > 0
    a_report.console.print(a_report.table())
    text = a_report.console.file.getvalue()
    assert "same kernel" in text and "call time" in text


def test_a_result_of_zeros_has_no_error(a_report):
    a_report.compare("reduce_min", torch_ops.reduce_min, torch.amin, torch.amin, torch.zeros(4))
    assert a_report.rows[0].error == 0


def test_a_row_tells_the_layout():
    image = torch.zeros(1, 3, 4, 5)
    assert _report.describe(image) == "(1, 3, 4, 5)"
    assert _report.describe(image.contiguous(memory_format=torch.channels_last)) == "(1, 3, 4, 5) channels_last"


@pytest.mark.gpu
@pytest.mark.alone
def test_a_row_on_the_gpu_has_a_ratio(tmp_path):
    report = _report.Report("cuda", Console(width=120, file=io.StringIO()), tmp_path)
    report.compare("mul", torch.mul, torch.mul, torch.mul, tinted().cuda(), torch.full((3, 1, 1), 1.25, device="cuda"))
    report.console.print(report.table())
    assert (
        "device time" in report.console.file.getvalue() and 0.5 < report.rows[0].torch_us / report.rows[0].gpuopt_us < 2
    )


def add_demo(monkeypatch, run):
    monkeypatch.setattr(command, "demos", lambda: ["fake"])
    monkeypatch.setitem(sys.modules, "examples.fake", types.SimpleNamespace(TITLE="a fake demo", run=run))


def test_a_demo_that_fails_is_loud(monkeypatch, capsys):
    def run(report):
        raise RuntimeError("the compiler is missing")

    add_demo(monkeypatch, run)
    assert command.main([]) == 1
    said = capsys.readouterr()
    assert "the compiler is missing" in said.out and "the demo fake FAILED" in said.err


def test_without_a_gpu_the_demo_says_that_its_kernels_did_not_run(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    add_demo(monkeypatch, lambda report: report.note(f"on {report.device}"))
    assert command.main([]) == 0
    said = capsys.readouterr().out
    assert "the GPU kernels of gpuopt were NOT run" in said and "on cpu" in said and "a fake demo" in said


def test_demos_are_found_by_being_files():
    assert (
        command.demos()
        and "white_balance" in command.demos()
        and not any(name.startswith("_") for name in command.demos())
    )
    with pytest.raises(SystemExit) as stopped:
        command.main(["nope"])
    assert stopped.value.code == 2
