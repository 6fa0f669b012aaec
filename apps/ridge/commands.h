// The subcommands of ridge: one file and one line each.
#pragma once

#include "command.h"

namespace ridge::app {

using AddCommand = void (*)(CLI::App& root, Invocation& invocation);

void AddBatchedBench(CLI::App& root, Invocation& invocation);
void AddBench(CLI::App& root, Invocation& invocation);
void AddDiagnose(CLI::App& root, Invocation& invocation);
void AddDoctor(CLI::App& root, Invocation& invocation);
void AddInspect(CLI::App& root, Invocation& invocation);
void AddEmbed(CLI::App& root, Invocation& invocation);
void AddKld(CLI::App& root, Invocation& invocation);
void AddLab(CLI::App& root, Invocation& invocation);
void AddLoad(CLI::App& root, Invocation& invocation);
void AddLogits(CLI::App& root, Invocation& invocation);
void AddList(CLI::App& root, Invocation& invocation);
void AddMonitor(CLI::App& root, Invocation& invocation);
void AddPerplexity(CLI::App& root, Invocation& invocation);
void AddPlan(CLI::App& root, Invocation& invocation);
void AddPull(CLI::App& root, Invocation& invocation);
void AddRm(CLI::App& root, Invocation& invocation);
void AddRoofline(CLI::App& root, Invocation& invocation);
void AddRun(CLI::App& root, Invocation& invocation);
void AddServe(CLI::App& root, Invocation& invocation);
void AddShow(CLI::App& root, Invocation& invocation);
void AddTemplate(CLI::App& root, Invocation& invocation);
void AddTokenize(CLI::App& root, Invocation& invocation);
void AddTune(CLI::App& root, Invocation& invocation);

// In the order in which --help shows them; one a line, so that two additions do not meet.
// clang-format off
inline constexpr AddCommand kCommands[] = {
    AddRun,
    AddServe,
    AddBench,
    AddBatchedBench,
    AddRoofline,
    AddEmbed,
    AddLogits,
    AddPerplexity,
    AddKld,
    AddMonitor,
    AddLab,
    AddDiagnose,
    AddPlan,
    AddTune,
    AddLoad,
    AddInspect,
    AddTokenize,
    AddTemplate,
    AddPull,
    AddList,
    AddShow,
    AddRm,
    AddDoctor,
};
// clang-format on

}  // namespace ridge::app
