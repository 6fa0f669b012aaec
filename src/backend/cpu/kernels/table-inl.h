// Fills the kernel table of the target RIDGE_ISA; a target's .cc includes its simd header, defines kColumns and kMaxTokens, and includes this.
#pragma once

#include "attention-inl.h"
#include "matmul_float-inl.h"
#include "matmul_many-inl.h"
#include "peak-inl.h"
#include "recurrent-inl.h"

#define RIDGE_KERNEL_TABLE(variable, name)                                                                             \
  namespace ridge::cpu {                                                                                               \
  const Kernels variable = {                                                                                           \
      name,                                                                                                            \
      RIDGE_ISA::kLanes,                                                                                               \
      RIDGE_ISA::kColumns,                                                                                             \
      RIDGE_ISA::kMaxTokens,                                                                                           \
      {RIDGE_ISA::FloatMatMul<RIDGE_ISA::Float32>,                                                                     \
       RIDGE_ISA::FloatMatMul<RIDGE_ISA::Float16>,                                                                     \
       RIDGE_ISA::FloatMatMul<RIDGE_ISA::BFloat16>,                                                                    \
       RIDGE_ISA::MatMul<PanelKind::kQ4_0>,                                                                            \
       RIDGE_ISA::MatMul<PanelKind::kQ4_1>,                                                                            \
       RIDGE_ISA::MatMul<PanelKind::kQ5_0>,                                                                            \
       RIDGE_ISA::MatMul<PanelKind::kQ5_1>,                                                                            \
       RIDGE_ISA::MatMul<PanelKind::kQ8_0>,                                                                            \
       RIDGE_ISA::MatMul<PanelKind::kIQ4_NL>,                                                                          \
       RIDGE_ISA::MatMul<PanelKind::kMXFP4>,                                                                           \
       RIDGE_ISA::MatMul<PanelKind::kNVFP4>,                                                                           \
       RIDGE_ISA::MatMul<PanelKind::kQ2_0>,                                                                            \
       RIDGE_ISA::MatMul<PanelKind::kQ2_K>,                                                                            \
       RIDGE_ISA::MatMul<PanelKind::kQ3_K>,                                                                            \
       RIDGE_ISA::MatMul<PanelKind::kQ4_K>,                                                                            \
       RIDGE_ISA::MatMul<PanelKind::kQ5_K>,                                                                            \
       RIDGE_ISA::MatMul<PanelKind::kQ6_K>,                                                                            \
       RIDGE_ISA::MatMul<PanelKind::kIQ4_XS>,                                                                          \
       RIDGE_ISA::MatMul<PanelKind::kIQ3_XXS>,                                                                         \
       RIDGE_ISA::MatMul<PanelKind::kIQ3_S>,                                                                           \
       RIDGE_ISA::MatMul<PanelKind::kIQ2_XXS>,                                                                         \
       RIDGE_ISA::MatMul<PanelKind::kIQ2>,                                                                             \
       RIDGE_ISA::MatMul<PanelKind::kIQ1_S>,                                                                           \
       RIDGE_ISA::MatMul<PanelKind::kIQ1_M>,                                                                           \
       RIDGE_ISA::MatMul<PanelKind::kTQ>},                                                                             \
      RIDGE_ISA::Quantize32,                                                                                           \
      RIDGE_ISA::Quantize256,                                                                                          \
      RIDGE_ISA::RmsNorm,                                                                                              \
      RIDGE_ISA::LayerNorm,                                                                                            \
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
       RIDGE_ISA::StoreV<RIDGE_ISA::KvQ8_0>, RIDGE_ISA::StoreV<RIDGE_ISA::KvQ4_0>},                                    \
      RIDGE_ISA::ShortConv,                                                                                            \
      RIDGE_ISA::DeltaRule,                                                                                            \
      {RIDGE_ISA::PeakInt8, RIDGE_PEAK_BF16, RIDGE_ISA::PeakFp32, RIDGE_ISA::Read}};                                   \
  }
