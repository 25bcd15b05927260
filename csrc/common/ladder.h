// A step of an optimisation ladder. A ladder is a list of versions of one kernel. Each version adds
// a single idea to its predecessor. Steps are short, because they are written to be read, and they
// have limits that production kernels do not have.
//
// A step that exchanges values within a warp synchronises the warp: from Volta on, the threads of a
// warp may run apart (CUDA C++ Programming Guide, "Independent Thread Scheduling").
#pragma once

namespace gpuopt {

struct LadderStep {
  const char* name;
  const char* idea;        // what is new, and why; no final full stop
  bool repeatable = true;  // bitwise equal results in every call
};

}  // namespace gpuopt
