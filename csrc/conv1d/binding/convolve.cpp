// gpuopt::convolve, made of other operators. Below kFftTaps taps it is an input gradient, or a
// convolution with reversed taps. From there on it multiplies Fourier transforms: of overlapping
// blocks (overlap-save), or of whole signals that are not much longer than the taps.
#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <torch/library.h>

#include <array>
#include <string_view>

#include "conv1d/binding/check.h"
#include "conv1d/binding/convolve_plan.h"

namespace gpuopt::conv1d {
namespace {

struct Convolve {
  using Result = Tensor;
  static constexpr std::string_view kSchema =
      "convolve(Tensor a, Tensor v, str mode=\"full\") -> Tensor";
  const Tensor &a, &v;
  std::string_view mode;
};

constexpr const char* kOp = "gpuopt::convolve";

void check_convolve(const Tensor& a, const Tensor& v, std::string_view mode) {
  TORCH_CHECK(mode == "full" || mode == "same" || mode == "valid", kOp,
              ": mode must be known: expected 'full', 'same' or 'valid', got '", mode, "'");
  TORCH_CHECK(a.dim() >= 1, kOp, ": a must have values: expected 1 dimension or more, got shape ",
              a.sym_sizes());
  TORCH_CHECK(v.dim() == 1, kOp, ": v must be a vector: expected 1 dimension, got shape ",
              v.sym_sizes());
  TORCH_CHECK(!is_known_zero(a.sym_size(-1)), kOp,
              ": a must not be empty: expected size 1 or more in its last dimension, got shape ",
              a.sym_sizes());
  TORCH_CHECK(!is_known_zero(v.sym_size(0)), kOp,
              ": v must not be empty: expected size 1 or more, got shape ", v.sym_sizes());
  TORCH_CHECK(v.device() == a.device(), kOp, ": v must be on the device of a: expected ",
              a.device(), ", got ", v.device());
}

// Refuses dtypes that ATen computes with on no device.
void check_convolve_dtype(at::ScalarType dtype) {
  const bool known = at::isIntegralType(dtype, /*includeBool=*/true) || at::isComplexType(dtype) ||
                     is_real_float(dtype);
  TORCH_CHECK_NOT_IMPLEMENTED(known, kOp, ": the dtype of a and v is not implemented: expected an ",
                              "integer, bool, floating-point or complex one that ATen computes ",
                              "with, got ", dtype);
}

// The part of the full result that numpy returns. It is the valid convolution of the signal with
// `before` zeros before it and `after` zeros after it, and has `size` values.
struct Part {
  Part(std::string_view mode, const SymInt& longer, const SymInt& taps)
      : before(taps - 1), after(taps - 1), size(longer + taps - 1) {
    if (mode == "full") return;
    before = mode == "same" ? taps / 2 : SymInt(0);
    after = mode == "same" ? (taps - 1) / 2 : SymInt(0);
    size = mode == "same" ? longer : longer - taps + 1;
  }

  SymInt before, after, size;
};

// The functions below take `signals` (rows, values) and `kernels` (rows, taps). One of the two has
// one row, and there are no more taps than values. Results are (rows, part.size).

// Whether an input gradient computes the result, which needs one kernel and long contiguous rows on
// CUDA. Unknown sizes are excluded, because they would become guards. Operands that are
// differentiated or batched are excluded too: derivatives of the other form have kernels in every
// layout.
bool takes_gradient(const Tensor& signals, const Tensor& kernels, const Part& part) {
  if (!signals.is_cuda() || signals.is_complex()) return false;
  for (const Tensor& operand : {signals, kernels}) {
    if (at::GradMode::is_enabled() && operand.requires_grad()) return false;
    if (operand.key_set().has(c10::DispatchKey::FuncTorchBatched)) return false;
  }
  const auto rows = kernels.sym_size(0).maybe_as_int(), taps = kernels.sym_size(1).maybe_as_int();
  const auto size = part.size.maybe_as_int(), stride = signals.sym_stride(1).maybe_as_int();
  return rows == 1 && taps.has_value() && size.has_value() && *size >= 128 && stride == 1;
}

// Convolves tap by tap. An input gradient reverses the taps by itself, which saves the time of
// flipping them (H200, 2^20 values, 255 taps: 1.4 of 23 us).
Tensor by_taps(const Tensor& signals, const Tensor& kernels, const Part& part) {
  const SymInt taps = kernels.sym_size(1);
  if (takes_gradient(signals, kernels, part)) {
    // Only the shape of the input is used.
    const Tensor input =
        signals.detach().narrow(1, 0, 1).unsqueeze(1).expand_symint({-1, 1, part.size});
    const std::array<SymInt, 2> padding{taps - 1 - part.before, taps - 1 - part.after};
    const Gradients gradients = Geometry{{1}, padding, {1}, 1}.backward(
        signals.unsqueeze(1), input, kernels.unsqueeze(0), {true, false, false});
    return std::get<0>(gradients).squeeze(1);
  }
  // Rows of signals are the batch. Rows of kernels are output channels.
  return Geometry{{1}, {part.before, part.after}, {1}, 1}
      .convolve(signals.unsqueeze(1), kernels.flip(1).unsqueeze(1), std::nullopt)
      .flatten(0, 1);
}

// For integers, whose sums wrap around, and for bools, whose products are "and" and whose sums are
// "or".
Tensor by_shifted_products(const Tensor& signals, const Tensor& kernels, const Part& part) {
  const std::array<SymInt, 2> padding{part.before, part.after};
  const Tensor padded = at::constant_pad_nd_symint(signals, padding);
  const int64_t taps = kernels.sym_size(1).guard_int(__FILE__, __LINE__);
  Tensor sum;
  for (int64_t k = 0; k < taps; ++k) {
    const Tensor product =
        at::mul(padded.narrow_symint(1, taps - 1 - k, part.size), kernels.narrow(1, k, 1));
    sum = sum.defined() ? at::add(sum, product) : product;
  }
  return sum;
}

// The circular convolution of rows by transforms of `size` values. Shorter rows end with zeros.
Tensor circular(const Tensor& signals, const Tensor& kernels, int64_t size) {
  return signals.is_complex()
             ? at::fft_ifft(at::fft_fft(signals, size) * at::fft_fft(kernels, size))
             : at::fft_irfft(at::fft_rfft(signals, size) * at::fft_rfft(kernels, size), size);
}

// A symbolic size gets a power of two, which guards a range of sizes and not one of them.
int64_t transform_size(const SymInt& least) {
  if (const auto known = least.maybe_as_int()) return fft_size(*known);
  int64_t size = 1;
  while (size < least) size *= 2;
  return size;
}

Tensor by_transforms(const Tensor& signals, const Tensor& kernels, const Part& part) {
  const int64_t taps = kernels.sym_size(1).guard_int(__FILE__, __LINE__);
  const int64_t block = fft_block(taps);
  // The result begins there in the full one. What a circular convolution adds to it from behind its
  // end must lie before the result.
  const SymInt begin = taps - 1 - part.before, full = signals.sym_size(1) + taps - 1;
  const SymInt least = (full - begin).max(begin + part.size);
  if (least <= block) {
    return circular(signals, kernels, transform_size(least)).narrow_symint(1, begin, part.size);
  }
  const int64_t step = block - taps + 1;  // results per block
  const SymInt blocks = (part.size + step - 1) / step;
  const std::array<SymInt, 2> padding{part.before, part.after + blocks * step - part.size};
  const Tensor windows = at::constant_pad_nd_symint(signals, padding).unfold(1, block, step);
  const Tensor result = circular(windows, kernels.unsqueeze(1), block);
  return result.narrow(2, taps - 1, step).flatten(1, 2).narrow_symint(1, 0, part.size);
}

// The dtype that stands for an unsigned integer that ATen does not add: the signed one of the same
// width. Sums are the same modulo 2^bits.
at::ScalarType added_as(at::ScalarType dtype) {
  if (dtype == at::kUInt16) return at::kShort;
  if (dtype == at::kUInt32) return at::kInt;
  return dtype == at::kUInt64 ? at::kLong : dtype;
}

Tensor convolve_rows(const Tensor& signals, const Tensor& kernels, const Part& part) {
  const auto dtype = signals.scalar_type();
  if (const auto added = added_as(dtype); added != dtype) {
    return convolve_rows(signals.to(added), kernels.to(added), part).to(dtype);
  }
  if (at::isIntegralType(dtype, /*includeBool=*/true)) {
    return by_shifted_products(signals, kernels, part);
  }
  if (kernels.sym_size(1) < kFftTaps) return by_taps(signals, kernels, part);
  const auto computed = at::toOpMathType(dtype);
  return by_transforms(signals.to(computed), kernels.to(computed), part).to(dtype);
}

Tensor convolve(const Convolve& op) {
  const auto& [a, v, mode] = op;
  check_convolve(a, v, mode);
  // Signals keep their precision under autocast.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const auto dtype = at::result_type(a, v);
  check_convolve_dtype(dtype);
  const SymInt m = a.sym_size(-1), n = v.sym_size(0);
  const bool swaps = m < n;
  const Part part(mode, swaps ? n : m, swaps ? m : n);
  std::vector<SymInt> shape = a.sym_sizes().vec();
  shape.back() = part.size;
  // Without rows there is nothing to compute, but the result must be differentiable.
  if (is_known_zero(a.sym_numel())) {
    return (a.to(dtype).narrow(-1, 0, 1) * v.to(dtype).narrow(0, 0, 1))
        .expand_symint(shape)
        .clone(at::MemoryFormat::Contiguous);
  }
  const Tensor values = a.to(dtype), row = v.to(dtype).unsqueeze(0);
  const Tensor rows = a.dim() == 1 ? values.unsqueeze(0) : values.flatten(0, -2);
  // by_transforms() returns a view, because the last block ends behind the result.
  const Tensor result =
      (swaps ? convolve_rows(row, rows, part) : convolve_rows(rows, row, part)).contiguous();
  if (a.dim() == 1) return result.squeeze(0);
  return a.dim() == 2 ? result
                      : result.unflatten_symint(0, SymIntArrayRef(shape).slice(0, a.dim() - 1));
}

TORCH_LIBRARY_FRAGMENT(gpuopt, m) { register_op<Convolve, Composite<convolve>>(m); }

}  // namespace
}  // namespace gpuopt::conv1d
