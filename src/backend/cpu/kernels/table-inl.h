// Fills the kernel table of the target RIDGE_ISA; a target's .cc defines kMaxTokens, includes its simd header and then this.
#pragma once

#include "attention-inl.h"
#include "matmul-inl.h"

#define RIDGE_KERNEL_TABLE(variable, name)                                                                             \
  namespace ridge::cpu {                                                                                               \
  const Kernels variable = {                                                                                           \
      name,                                                                                                            \
      {RIDGE_ISA::FloatMatMul<RIDGE_ISA::Float32>, RIDGE_ISA::FloatMatMul<RIDGE_ISA::Float16>,                         \
       RIDGE_ISA::FloatMatMul<RIDGE_ISA::BFloat16>, RIDGE_ISA::MatMul<PanelQ4_0>, RIDGE_ISA::MatMul<PanelQ4_1>,        \
       RIDGE_ISA::MatMul<PanelQ5_0>, RIDGE_ISA::MatMul<PanelQ5_1>, RIDGE_ISA::MatMul<PanelQ8_0>,                       \
       RIDGE_ISA::MatMul<PanelQ4_K>, RIDGE_ISA::MatMul<PanelQ5_K>, RIDGE_ISA::MatMul<PanelQ6_K>},                      \
      RIDGE_ISA::Quantize<32, 32>,                                                                                     \
      RIDGE_ISA::Quantize<256, 16>,                                                                                    \
      RIDGE_ISA::RmsNorm,                                                                                              \
      RIDGE_ISA::Rope,                                                                                                 \
      RIDGE_ISA::Add,                                                                                                  \
      RIDGE_ISA::Scale,                                                                                                \
      RIDGE_ISA::Softcap,                                                                                              \
      RIDGE_ISA::GatedAct,                                                                                             \
      RIDGE_ISA::Axpy,                                                                                                 \
      RIDGE_ISA::Softmax,                                                                                              \
      RIDGE_ISA::Attention,                                                                                            \
      RIDGE_ISA::CombineAttention,                                                                                     \
      {RIDGE_ISA::StoreK<RIDGE_ISA::KvF16>, RIDGE_ISA::StoreK<RIDGE_ISA::KvBF16>, RIDGE_ISA::StoreK<RIDGE_ISA::KvF32>, \
       RIDGE_ISA::StoreK<RIDGE_ISA::KvQ8_0>, RIDGE_ISA::StoreK<RIDGE_ISA::KvQ4_0>},                                    \
      {RIDGE_ISA::StoreV<RIDGE_ISA::KvF16>, RIDGE_ISA::StoreV<RIDGE_ISA::KvBF16>, RIDGE_ISA::StoreV<RIDGE_ISA::KvF32>, \
       RIDGE_ISA::StoreV<RIDGE_ISA::KvQ8_0>, RIDGE_ISA::StoreV<RIDGE_ISA::KvQ4_0>}};                                   \
  }
