#include "engine/waiting_queue.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

namespace ridge::engine {

// Perhaps empty, for who fills it at once.
WaitingQueue::Line& WaitingQueue::LineOf(const Sequence& sequence) {
  const auto of_class = classes_.try_emplace(sequence.priority).first;
  try {
    return of_class->second.of_tenant[sequence.tenant];
  } catch (const std::bad_alloc&) {
    if (of_class->second.of_tenant.empty()) classes_.erase(of_class);
    throw;
  }
}

void WaitingQueue::Insert(std::unique_ptr<Sequence>&& sequence) {
  const auto indexed = by_id_.emplace(sequence->id, sequence.get()).first;
  bool lined = false;
  try {
    Line& line = LineOf(*sequence);
    lined = true;
    std::unique_ptr<Sequence>& place = line.sequences[sequence->id];
    line.tenant = &tenants_.at(sequence->tenant);
    place = std::move(sequence);
  } catch (const std::bad_alloc&) {
    by_id_.erase(indexed);
    if (lined) EraseIfEmpty(sequence->priority, sequence->tenant);
    throw;
  }
}

// Of all tenants that have a sequence.
double WaitingQueue::LeastTokens() {
  if (least_tokens_) return *least_tokens_;
  double least = -1;
  for (const auto& [name, tenant] : tenants_) {
    if (tenant.sequences > 0) least = least < 0 ? tenant.tokens : std::min(least, tenant.tokens);
  }
  least_tokens_ = std::max(least, 0.0);
  return *least_tokens_;
}

void WaitingQueue::Push(std::unique_ptr<Sequence>&& sequence) {
  const auto place = tenants_.try_emplace(sequence->tenant).first;
  try {
    Insert(std::move(sequence));
  } catch (const std::bad_alloc&) {
    if (place->second.sequences == 0) tenants_.erase(place);
    throw;
  }
  Tenant& tenant = place->second;
  if (tenant.sequences == 0) tenant.tokens = std::max(tenant.tokens, LeastTokens());
  tenant.sequences++;
}

void WaitingQueue::PushFront(std::unique_ptr<Sequence>&& sequence) { Insert(std::move(sequence)); }

int32_t WaitingQueue::HeadPriority() const {
  for (const auto& [priority, c] : classes_) {
    if (c.passed_over >= kMostPassedOver) return priority;
  }
  return classes_.begin()->first;
}

Sequence* WaitingQueue::Head() const {
  if (empty()) return nullptr;
  Sequence* head = nullptr;
  double least = 0;
  for (const auto& [name, line] : classes_.at(HeadPriority()).of_tenant) {
    Sequence* first = line.sequences.begin()->second.get();
    const double tokens = line.tenant->tokens;
    if (head == nullptr || tokens < least || (tokens == least && first->id < head->id)) head = first, least = tokens;
  }
  return head;
}

std::unique_ptr<Sequence> WaitingQueue::Take(const Sequence& sequence) {
  auto& sequences = classes_.at(sequence.priority).of_tenant.at(sequence.tenant).sequences;
  const auto at = sequences.find(sequence.id);
  std::unique_ptr<Sequence> taken = std::move(at->second);
  sequences.erase(at);
  by_id_.erase(taken->id);
  EraseIfEmpty(taken->priority, taken->tenant);
  return taken;
}

void WaitingQueue::EraseIfEmpty(int32_t priority, const std::string& tenant) {
  const auto at = classes_.find(priority);
  if (at->second.of_tenant.at(tenant).sequences.empty()) at->second.of_tenant.erase(tenant);
  if (at->second.of_tenant.empty()) classes_.erase(at);
}

std::unique_ptr<Sequence> WaitingQueue::TakeHead() {
  const Sequence* head = Head();
  RIDGE_CHECK(head != nullptr);
  const auto from = classes_.find(head->priority);
  from->second.passed_over = 0;
  for (auto at = std::next(from); at != classes_.end(); ++at) at->second.passed_over++;
  return Take(*head);
}

std::unique_ptr<Sequence> WaitingQueue::Remove(RequestId id) {
  const auto at = by_id_.find(id);
  return at == by_id_.end() ? nullptr : Take(*at->second);
}

void WaitingQueue::Charge(const Sequence& sequence, int64_t tokens) {
  tenants_.at(sequence.tenant).tokens += static_cast<double>(tokens);
  least_tokens_.reset();
}

void WaitingQueue::Leave(const Sequence& sequence) {
  const auto at = tenants_.find(sequence.tenant);
  if (--at->second.sequences > 0) return;
  if (at->second.tokens <= least_tokens_.value_or(0)) least_tokens_.reset();
  tenants_.erase(at);
}

const Sequence* WaitingQueue::Find(RequestId id) const {
  const auto at = by_id_.find(id);
  return at == by_id_.end() ? nullptr : at->second;
}

std::vector<const Sequence*> WaitingQueue::All() const {
  std::vector<const Sequence*> all;
  all.reserve(by_id_.size());
  for (const auto& [id, sequence] : by_id_) all.push_back(sequence);
  return all;
}

}  // namespace ridge::engine
