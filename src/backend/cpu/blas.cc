#include "backend/cpu/blas.h"

#include <dlfcn.h>

#include <string>

namespace ridge::cpu {

Result<Blas> LoadBlas([[maybe_unused]] int n_threads) {
#if !defined(RIDGE_OPENBLAS)
  return Fail(Code::kUnsupported, "this build has no BLAS")
      .Where("--matmul")
      .Found("blas")
      .Expected("native")
      .Remedy("install OpenBLAS (apt install libopenblas-dev) and build again, or leave the flag out");
#else
  const auto unavailable = [](const char* why) -> Result<Blas> {
    return Fail(Code::kUnavailable, "OpenBLAS cannot be loaded")
        .Where("--matmul blas")
        .Found(why == nullptr ? "no reason given" : why)
        .Expected(RIDGE_OPENBLAS)
        .Remedy("install it again (apt install libopenblas-dev), or leave the flag out");
  };
  void* library = dlopen(RIDGE_OPENBLAS, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return unavailable(dlerror());
  Blas blas;
  blas.sgemm = reinterpret_cast<decltype(blas.sgemm)>(dlsym(library, "cblas_sgemm"));
  const auto set_threads = reinterpret_cast<void (*)(int)>(dlsym(library, "openblas_set_num_threads"));
  if (blas.sgemm == nullptr || set_threads == nullptr) return unavailable(dlerror());
  set_threads(n_threads);
  return blas;  // the library stays loaded: its threads cannot be ended
#endif
}

}  // namespace ridge::cpu
