#include "speculation_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "profile.h"
#include "pull_progress.h"

namespace ridge::app {

using engine::Speculation;

namespace {

int64_t Drafts(engine::Speculation speculation) { return speculation == engine::Speculation::kOff ? 0 : kDraftRows; }

}  // namespace

std::vector<CLI::Option*> SpeculationOptions::Add(CLI::App* app) {
  CLI::Option* speculation = app->add_option(
      "--spec", speculation_,
      fmt::format("speculative decoding: off, lookup (in prompt and answer), draft (by --draft-model), or "
                  "auto: whatever there is, where it pays (default: {}). The answer is the same with each",
                  standard_ == "auto" ? standard_ : standard_ + "; auto with --draft-model"));
  CLI::Option* draft =
      app->add_option("--draft-model,--model-draft,--md", draft_model_,
                      "a small model with the same vocabulary that drafts for the first: a file, or a name as with -m");
  return {speculation, draft};
}

Result<engine::Speculation> SpeculationOptions::Resolve() const {
  const std::string& name = !speculation_.empty() ? speculation_ : !draft_model_.empty() ? "auto" : standard_;
  for (const Speculation s : {Speculation::kOff, Speculation::kLookup, Speculation::kDraft, Speculation::kAuto}) {
    if (name != engine::Name(s)) continue;
    if (s == Speculation::kDraft && draft_model_.empty()) {
      return Fail(Code::kUsage, "drafting needs a draft model")
          .Where("--spec draft")
          .Remedy("give one with --draft-model, or use --spec lookup");
    }
    if ((s == Speculation::kOff || s == Speculation::kLookup) && !draft_model_.empty()) {
      return Fail(Code::kUsage, "the draft model would not be used")
          .Where("--draft-model")
          .Found("--spec " + name)
          .Expected("--spec draft or auto");
    }
    return s;
  }
  return Fail(Code::kUsage, "wrong value").Where("--spec").Found(name).Expected("off, lookup, draft or auto");
}

// draft: options of the first model, and afterwards those of the draft model.
Result<std::unique_ptr<service::Runtime>> SpeculationOptions::PlanDraft(service::RuntimeOptions& draft,
                                                                        int64_t sequences) const {
  RIDGE_ASSIGN_OR_RETURN(draft.path, ResolveOrPull(draft_model_));
  draft.logit_rows = sequences;
  draft.drafts = 0;
  draft.sequences = 1;
  draft.kv_bytes.reset();
  draft.dry_run = true;
  return service::Runtime::Load(draft);
}

Result<SpeculationOptions::Loaded> SpeculationOptions::Load(const ModelOptions& model, const LoadNeeds& needs,
                                                            int64_t sequences) const {
  Loaded loaded;
  RIDGE_ASSIGN_OR_RETURN(loaded.speculation, Resolve());
  RIDGE_ASSIGN_OR_RETURN(service::RuntimeOptions options, model.Check(needs));
  RIDGE_ASSIGN_OR_RETURN(options.path, ResolveOrPull(model.model()));
  RIDGE_ASSIGN_OR_RETURN(loaded.profile, model.TakeProfile(options.path));
  if (loaded.profile && loaded.profile->speculation && speculation_.empty() && draft_model_.empty()) {
    for (const Speculation s : {Speculation::kOff, Speculation::kLookup, Speculation::kAuto}) {
      if (*loaded.profile->speculation == engine::Name(s)) loaded.speculation = s;
    }
  }
  options.drafts = Drafts(loaded.speculation);
  options.logit_rows = std::max(needs.logit_rows, sequences + options.drafts);
  model.Apply(loaded.profile.get(), options);
  if (draft_model_.empty()) {
    RIDGE_ASSIGN_OR_RETURN(loaded.model, ModelOptions::LoadResolved(options));
    return loaded;
  }
  service::RuntimeOptions draft = options;
  RIDGE_ASSIGN_OR_RETURN(const std::unique_ptr<service::Runtime> planned, PlanDraft(draft, sequences));
  options.draft = planned.get();
  RIDGE_ASSIGN_OR_RETURN(loaded.model, ModelOptions::LoadResolved(options));
  draft.dry_run = false;
  draft.chunk_tokens = loaded.model->chunk_tokens();
  draft.context_tokens = loaded.model->request_tokens();
  draft.kv_bytes = planned->memory().kv_page_bytes * static_cast<uint64_t>(loaded.model->state_options().n_pages);
  RIDGE_ASSIGN_OR_RETURN(loaded.draft, service::Runtime::Load(draft));
  for (const std::string& note : loaded.draft->notes()) Note("draft model: " + note);
  return loaded;
}

Result<SpeculationOptions::Loaded> SpeculationOptions::Plan(service::RuntimeOptions asked) const {
  RIDGE_ASSIGN_OR_RETURN(const Speculation speculation, Resolve());
  asked.drafts = Drafts(speculation);
  asked.logit_rows = asked.sequences + asked.drafts;
  asked.dry_run = true;
  Loaded planned;
  if (!draft_model_.empty()) {
    service::RuntimeOptions draft = asked;
    RIDGE_ASSIGN_OR_RETURN(planned.draft, PlanDraft(draft, asked.sequences));
    asked.draft = planned.draft.get();
  }
  RIDGE_ASSIGN_OR_RETURN(planned.model, service::Runtime::Load(asked));
  return planned;
}

Json SpeculationOptions::ConfigJson(engine::Speculation speculation, const service::Runtime* draft,
                                    const Profile* profile) {
  return {{"speculation", std::string(engine::Name(speculation))},
          {"draft_model", draft == nullptr ? Json(nullptr) : Json(draft->model().file().path())},
          {"draft_kv_bytes", draft == nullptr ? Json(nullptr) : Json(draft->memory().kv_bytes)},
          {"profile", profile == nullptr ? Json(nullptr) : Json(profile->path)},
          {"profile_settings", profile == nullptr ? Json(nullptr) : Json(profile->Flags())}};
}

}  // namespace ridge::app
