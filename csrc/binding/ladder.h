// Registers ladders in the namespace torch.ops.gpuopt_ladder: for each an operator whose last
// argument is the step, and the names of its steps. binding/ladder_cuda.h has the kernels' part.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "binding/check.h"
#include "common/ladder.h"

namespace gpuopt {

struct Ladder {
  const LadderStep* steps = nullptr;
  int64_t count = 0;
};

// Defines an operator without derivatives while the library is loaded.
class RegisterLadder {
 public:
  // The last step is the production operator of the same name.
  template <size_t N>
  RegisterLadder(const LadderStep (&steps)[N], const char* schema)
      : RegisterLadder(Ladder{steps, static_cast<int64_t>(N)}, schema) {}

  // An operator without steps.
  explicit RegisterLadder(const char* schema);

 private:
  RegisterLadder(Ladder ladder, const char* schema);
};

// ValueError for an operator that has no ladder.
const Ladder& ladder_of(const std::string& op);

// RuntimeError for memory that is not aligned to this many bytes.
void check_aligned(const std::string& op, NamedTensor argument, int64_t bytes);

// A call of a ladder's operator.
class LadderCall {
 public:
  // ValueError if the step does not exist. Under torch.use_deterministic_algorithms, RuntimeError
  // if the step is not repeatable.
  LadderCall(const char* op, int64_t step);

  int step() const { return static_cast<int>(step_); }
  bool is_production() const { return step_ == ladder_.count - 1; }

  // Whether this step has the name, and whether it or a step before it has.
  bool is(std::string_view name) const { return name == ladder_.steps[step_].name; }
  bool is_from(std::string_view name) const;

  // What messages begin with: "gpuopt_ladder::mul", and "gpuopt_ladder::mul, step half2".
  const char* op() const { return op_.c_str(); }
  std::string op_and_step() const { return op_ + ", step " + ladder_.steps[step_].name; }

  // NotImplementedError for a dtype that the ladder has no kernels for.
  void check_dtype(NamedTensor argument, std::initializer_list<at::ScalarType> dtypes) const;

  // check_dtype(), and RuntimeError for memory that isn't contiguous.
  void check_operand(NamedTensor argument, std::initializer_list<at::ScalarType> dtypes) const;

  // RuntimeError for memory that is not aligned as the step needs it.
  void check_vecs(NamedTensor argument) const { check_aligned(op_and_step(), argument, 16); }
  void check_pairs(NamedTensor argument) const { check_aligned(op_and_step(), argument, 4); }

 private:
  const Ladder& ladder_;
  int64_t step_;
  std::string op_;
};

}  // namespace gpuopt
