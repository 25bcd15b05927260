// Registers ladders in the namespace torch.ops.gpuopt_ladder: for each an operator whose last
// argument is the step, and the names of its steps.
#pragma once

#include <ATen/ATen.h>

#include <string>

#include "common/ladder.h"

namespace gpuopt {

struct Ladder {
  const LadderStep* steps = nullptr;
  int64_t count = 0;
};

// Registers a ladder while the library is loaded. Its last step is the production operator of the
// same name. With a schema, it also defines the ladder's operator, which has no derivatives.
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

// ValueError if the step does not exist. Under torch.use_deterministic_algorithms, RuntimeError if
// the step is not repeatable.
void check_step(const char* op, int64_t step);

// Whether `step` is the production operator. check_step must have accepted it.
inline bool is_production(const char* op, int64_t step) { return step == ladder_of(op).count - 1; }

// NotImplementedError for a dtype that the ladder has no kernels for, RuntimeError for memory that
// isn't contiguous.
void check_ladder_operand(const char* op, const char* name, const at::Tensor& tensor,
                          std::initializer_list<at::ScalarType> dtypes);

// RuntimeError for memory that is not aligned to 16 bytes. The message names `step`, unless it is
// null because all steps need the alignment.
void check_ladder_vecs(const char* op, const char* step, const char* name,
                       const at::Tensor& tensor);

}  // namespace gpuopt
