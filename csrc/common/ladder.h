// What is said of a step of an optimisation ladder: versions of one kernel, each a single idea away
// from the one before. They are small, to be read, and have limits that production kernels don't.
// They wait for the lanes of a warp where these exchange anything: from Volta on lanes need not be
// in step (CUDA C++ Programming Guide, "Independent Thread Scheduling").
#pragma once

namespace gpuopt {

struct LadderStep {
  const char* name;
  const char* idea;        // a sentence: what is new, and why
  bool repeatable = true;  // bitwise, from call to call
};

}  // namespace gpuopt
