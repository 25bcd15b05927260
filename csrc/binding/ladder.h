// gpuopt_ladder: the ladders' operators, each with a step as its last argument, and what its steps
// are called.
#pragma once

#include <ATen/ATen.h>

#include <string>

#include "common/ladder.h"

namespace gpuopt {

struct Ladder {
  const LadderStep* steps = nullptr;
  int64_t count = 0;
};

// A ladder that exists from when the library is loaded on. The last step is the production operator
// of the same name. With a schema its operator exists too, and has no derivatives.
class RegisterLadder {
 public:
  template <size_t N>
  RegisterLadder(const char* op, const LadderStep (&steps)[N], const char* schema = nullptr)
      : RegisterLadder(op, Ladder{steps, static_cast<int64_t>(N)}, schema) {}

 private:
  RegisterLadder(const char* op, Ladder ladder, const char* schema);
};

// ValueError for an operator that has no ladder.
const Ladder& ladder_of(const std::string& op);

// ValueError for a step that isn't one, and where results must be repeatable RuntimeError for one
// whose are not.
void check_step(const char* op, int64_t step);

// Whether `step`, a checked one, is the production operator.
inline bool is_production(const char* op, int64_t step) { return step == ladder_of(op).count - 1; }

// NotImplementedError for a dtype that the ladder has no kernels for, RuntimeError for memory that
// isn't contiguous.
void check_ladder_operand(const char* op, const char* name, const at::Tensor& tensor,
                          std::initializer_list<at::ScalarType> dtypes);

// RuntimeError for memory that 16-byte accesses can't begin at. `step` is null where all take them.
void check_ladder_vecs(const char* op, const char* step, const char* name,
                       const at::Tensor& tensor);

}  // namespace gpuopt
