// Argument checks of padding. Exceptions have the types that
// torch.nn.functional.pad raises.
#pragma once

#include <optional>

#include "binding/check.h"
#include "pad/pad_ops.h"
#include "pad/pad_plan.h"

namespace gpuopt::pad {

inline std::optional<Mode> mode_named(std::string_view name) {
  if (name == "constant") return Mode::kConstant;
  if (name == "reflect") return Mode::kReflect;
  if (name == "replicate") return Mode::kReplicate;
  if (name == "circular") return Mode::kCircular;
  return std::nullopt;
}

inline Mode checked_mode(const char* op, std::string_view name) {
  const std::optional<Mode> mode = mode_named(name);
  TORCH_CHECK_NOT_IMPLEMENTED(mode.has_value(), op,
                              ": mode must be known: expected 'constant', 'reflect', 'replicate' "
                              "or 'circular', got '",
                              name, "'");
  return *mode;
}

// The dimension that the k-th pair of `pad` pads, counted from the front.
inline int64_t dim_of_pair(int64_t rank, size_t k) { return rank - 1 - static_cast<int64_t>(k); }

// Returns the sizes of the result.
inline at::SymDimVector check(const Pad& call) {
  const char* op = name_of<Pad>();
  const auto& [self, pad, name, value] = call;
  const Mode mode = checked_mode(op, name);
  const int64_t rank = self.dim();
  const auto pairs = static_cast<int64_t>(pad.size() / 2);
  TORCH_CHECK(pad.size() % 2 == 0, op,
              ": pad must have two numbers for each dimension: expected an even length, got ", pad);
  TORCH_CHECK(pairs <= rank, op, ": pad must name dimensions of input: expected at most ", 2 * rank,
              " numbers, got ", pad);
  if (mode != Mode::kConstant) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        1 <= pairs && pairs <= 3 && (rank == pairs + 1 || rank == pairs + 2), op,
        ": pad must name all dimensions of input except for channels and batch: expected ", name,
        " padding of the last 1 to 3 of 2 to 5 dimensions, got ", pad, " for shape ",
        self.sym_sizes());
    TORCH_CHECK(!value.has_value() || value->equal(0), op,
                ": value must be given with mode 'constant' only: expected None, got ", *value);
  }
  at::SymDimVector sizes(self.sym_sizes());
  bool any = mode == Mode::kConstant || mode == Mode::kCircular;
  if (!any) {
    for (int64_t d = rank - pairs - 1; d < rank; ++d) {
      TORCH_CHECK(sizes[d] > 0, op,
                  ": input must have elements in each example: expected sizes above 0, got shape ",
                  self.sym_sizes());
    }
  }
  for (int64_t k = 0; k < pairs; ++k) {
    c10::SymInt& size = sizes[dim_of_pair(rank, k)];
    const c10::SymInt &before = pad[2 * k], &after = pad[2 * k + 1];
    const c10::SymInt cropped = before.min(0) + after.min(0);
    TORCH_CHECK(cropped == 0 || size + cropped >= 0, op,
                ": pad must not crop more than there is: expected numbers that remove at most ",
                size, " of dimension ", dim_of_pair(rank, k), ", got ", pad);
    // ATen's result is not defined there.
    TORCH_CHECK(
        mode != Mode::kCircular || cropped == 0 || (before <= 0 && after <= 0), op,
        ": pad must not crop one side of a dimension and wrap the other: expected numbers of "
        "one sign, got ",
        pad);
    if (mode == Mode::kReflect || mode == Mode::kCircular) {
      const c10::SymInt most = mode == Mode::kReflect ? size - 1 : size;
      TORCH_CHECK(before <= most && after <= most, op,
                  ": pad must not be wider than input: ", "expected at most ", most, " for ", name,
                  " padding of dimension ", dim_of_pair(rank, k), ", got ", pad);
    }
    size = size + before + after;
    any = any || size > 0;
  }
  TORCH_CHECK(any, op, ": pad must leave elements: expected a result with elements, got shape ",
              sizes);
  return sizes;
}

// The format of a result: channels_last for channels_last images, as on CPUs.
inline at::MemoryFormat format_of(Mode mode, const at::Tensor& self) {
  return mode == Mode::kCircular ? at::MemoryFormat::Contiguous : self.suggest_memory_format();
}

// The memory format of a concatenation.
inline at::MemoryFormat format_of(const at::MaterializedITensorListRef& tensors) {
  const at::MemoryFormat first = tensors[0].get().suggest_memory_format();
  for (const at::Tensor& tensor : tensors) {
    if (tensor.suggest_memory_format() != first) return at::MemoryFormat::Contiguous;
  }
  return first;
}

}  // namespace gpuopt::pad
