// Repacks rows of a GGUF tensor into the panels that the kernels read (kernels/panels.h).
//
//   if (auto kind = PanelFor(type)) PackPanel(type, rows, 16, k, panel);   // panel: PanelBytes(*kind, k), zeroed
//
// Guarantee: a panel decodes to the same values as the source rows, bit for bit; lanes past n_rows are left as they are (zero).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "backend/cpu/kernels/panels.h"
#include "quant/quant.h"

namespace ridge::cpu {

std::optional<PanelKind> PanelFor(quant::TypeId type);  // nullopt: no fast kernel
const char* Name(PanelKind kind);
int64_t PanelBytes(PanelKind kind, int64_t k);

// rows [n_rows, k] in the GGUF type `type`, which has a panel; n_rows <= 16.
void PackPanel(quant::TypeId type, const std::byte* rows, int64_t n_rows, int64_t k, uint8_t* panel);

}  // namespace ridge::cpu
