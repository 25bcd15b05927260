// Marks the functions of the kernels library that bindings call. Everything else in it is hidden.
#pragma once

#define GPUOPT_EXPORT __attribute__((visibility("default")))
