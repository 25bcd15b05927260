// The CUDA kernels of sparse products: describe tensors as problems, and launch their plans.
#include <ATen/ATen.h>

#include <array>

#include "binding/unfilled.h"
#include "spmm/binding/spmm_launch.h"
#include "spmm/spmm_bags.h"

namespace gpuopt::spmm {
namespace {

// A product with dense rows. The problem and the tensors that it points to.
template <typename Op>
struct DenseCall {
  DenseCall(const Op& op, const Shape& shape) : a(op, shape), dense(op.dense, shape.row_dim) {
    check_memory(name_of<Op>(), {{"dense", op.dense}});
    value = contiguous(op.value);
    check_memory(name_of<Op>(), {{"value", value}});
    for (const SymInt& size : shape.result(op.dense)) sizes.push_back(known(size));
    problem.matrix = a.matrix;
    problem.dtype = to_dtype(name_of<Op>(), op.dense.scalar_type());
    problem.batches = dense.tensor.size(0);
    problem.features = dense.tensor.size(2);
    problem.value = data_of(value);
    problem.heads = shape.has_heads ? value.size(1) : 1;
    problem.dense = dense.rows;
  }

  bool is_empty() const {
    return c10::multiply_integers(sizes) == 0 || problem.matrix.entries == 0;
  }

  void run(const Tensor& result) {
    problem.out = written(result, problem.matrix.rows, problem.features);
    rows::run(name_of<Op>(), problem);
  }

  MatrixOperand a;
  RowsOperand dense;
  Tensor value;
  at::DimVector sizes;  // of the result
  ReduceProblem problem;
};

Reduce to_reduce(std::string_view name) {
  if (name == "mean") return Reduce::kMean;
  if (name == "max") return Reduce::kMax;
  return name == "min" ? Reduce::kMin : Reduce::kSum;
}

// Spmm, SpmmWide or SpmmSelected.
template <typename Op>
Tensor dense_cuda(const Op& op) {
  const Shape shape = check(op);
  const c10::cuda::CUDAGuard guard(op.dense.device());
  DenseCall<Op> call(op, shape);
  constexpr bool kWide = std::is_same_v<Op, SpmmWide>;
  const auto dtype = kWide ? compute_type(op.dense) : op.dense.scalar_type();
  const Tensor result = unfilled(call.sizes, op.dense.options().dtype(dtype));
  if (call.is_empty()) return result.zero_();
  call.problem.wide_out = kWide;
  Tensor selected;
  if constexpr (requires { op.selected; }) {
    selected = op.selected.contiguous();
    check_memory(name_of<Op>(), {{"selected", selected}});
    call.problem.selected = data_of(selected);
  } else if constexpr (requires { op.reduce; }) {
    call.problem.reduce = to_reduce(op.reduce);
  }
  call.run(result);
  return result;
}

SpmmArg::Result arg_cuda(const SpmmArg& op) {
  const Shape shape = check(op);
  const c10::cuda::CUDAGuard guard(op.dense.device());
  DenseCall<SpmmArg> call(op, shape);
  const Tensor result = unfilled(call.sizes, op.dense.options());
  const Tensor arg = unfilled(call.sizes, op.ptr.options());
  if (call.is_empty()) return {result.zero_(), arg.fill_(-1)};
  call.problem.reduce = to_reduce(op.reduce);
  call.problem.arg = arg.mutable_data_ptr();
  call.run(result);
  return {result, arg};
}

Tensor sddmm_cuda(const Sddmm& op) {
  const Shape shape = check(op);
  const char* name = name_of<Sddmm>();
  check_memory(name, {{"a", op.a}, {"b", op.b}});
  const c10::cuda::CUDAGuard guard(op.a.device());
  const MatrixOperand s(op, shape);
  const RowsOperand a(op.a, 0), b(op.b, 0);
  ProductProblem problem;
  problem.matrix = s.matrix;
  problem.dtype = to_dtype(name, op.a.scalar_type());
  problem.features = a.tensor.size(2);
  problem.heads = op.heads ? op.a.size(1) : 1;
  problem.a = a.rows;
  problem.b = b.rows;
  at::DimVector sizes{problem.matrix.entries};
  if (op.heads) sizes.push_back(problem.heads);
  const Tensor result = unfilled(sizes, op.a.options());
  if (problem.matrix.entries == 0 || problem.features == 0) return result.zero_();
  problem.out = result.mutable_data_ptr();
  if (const auto map = as_map(problem)) {
    run(name, *map);
  } else {
    run(name, problem);
  }
  return result;
}

EmbeddingBag::Result bags_cuda(const EmbeddingBag& op) {
  const char* name = name_of<EmbeddingBag>();
  check_memory(name, {{"weight", op.weight}, {"index", op.index}, {"offsets", op.offsets}});
  const c10::cuda::CUDAGuard guard(op.weight.device());
  const RowsOperand table(op.weight, 0);
  const Tensor index = op.index.contiguous(), offsets = op.offsets.contiguous();
  const Tensor value = contiguous(op.value);
  check_memory(name, {{"value", value}});
  const auto numbers = index.options();
  BagProblem problem;
  problem.bag = static_cast<Bag>(op.mode);
  problem.dtype = to_dtype(name, op.weight.scalar_type());
  problem.is_long = index.scalar_type() == at::kLong;
  problem.bags = known(op.bags());
  problem.entries = index.numel();
  problem.table_rows = op.weight.size(0);
  problem.features = op.weight.size(1);
  problem.padding = op.padding_idx;
  const std::array<int64_t, 2> sizes{problem.bags, problem.features};
  const Tensor out = unfilled(sizes, op.weight.options());
  const Tensor bag_of = unfilled(index.sizes(), numbers), size = unfilled(offsets.sizes(), numbers);
  const Tensor winner =
      problem.bag == Bag::kMax ? unfilled(sizes, numbers) : at::empty({0}, numbers);
  if (out.numel() == 0 || problem.entries == 0) {
    return {out.zero_(), bag_of.zero_(), size.zero_(), winner.fill_(-1)};
  }
  TORCH_CHECK(is_supported(problem), name,
              ": weight and offsets must have sizes that kernels support: expected 1 to 2^32 rows "
              "and less than 2^36 results, got ",
              problem.table_rows, " rows and ", problem.bags, " bags");
  problem.offset = data_of(offsets);
  problem.index = data_of(index);
  problem.value = data_of(value);
  problem.table = table.rows;
  problem.out = out.mutable_data_ptr();
  problem.bag_of = bag_of.mutable_data_ptr();
  problem.size = size.mutable_data_ptr();
  problem.winner = winner.numel() > 0 ? winner.mutable_data_ptr() : nullptr;
  check_launch(name, launch(plan(problem, current_device()), c10::cuda::getCurrentCUDAStream()));
  return {out, bag_of, size, winner};
}

TORCH_LIBRARY_IMPL(gpuopt, CUDA, m) {
  impl<EmbeddingBag, bags_cuda>(m);
  impl<Spmm, dense_cuda<Spmm>>(m);
  impl<SpmmWide, dense_cuda<SpmmWide>>(m);
  impl<SpmmArg, arg_cuda>(m);
  impl<SpmmSelected, dense_cuda<SpmmSelected>>(m);
  impl<Sddmm, sddmm_cuda>(m);
}

}  // namespace
}  // namespace gpuopt::spmm
