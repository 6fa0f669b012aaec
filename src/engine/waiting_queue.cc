#include "engine/waiting_queue.h"

#include <algorithm>
#include <new>
#include <utility>

namespace ridge::engine {

// Perhaps empty, for who fills it at once.
std::deque<std::unique_ptr<Sequence>>& WaitingQueue::QueueOf(const Sequence& sequence) {
  const auto of_class = classes_.try_emplace(sequence.priority).first;
  try {
    return of_class->second.of_tenant[sequence.tenant];
  } catch (const std::bad_alloc&) {
    if (of_class->second.of_tenant.empty()) classes_.erase(of_class);
    throw;
  }
}

void WaitingQueue::Insert(std::unique_ptr<Sequence>&& sequence, bool front) {
  const Sequence& added = *sequence;
  auto& queue = QueueOf(added);
  try {
    queue.insert(front ? queue.begin() : queue.end(), std::move(sequence));
  } catch (const std::bad_alloc&) {
    EraseIfEmpty(added.priority, added.tenant);
    throw;
  }
  size_++;
}

void WaitingQueue::Push(std::unique_ptr<Sequence>&& sequence) {
  const auto place = tenants_.try_emplace(sequence->tenant).first;
  try {
    Insert(std::move(sequence), /*front=*/false);
  } catch (const std::bad_alloc&) {
    if (place->second.sequences == 0) tenants_.erase(place);
    throw;
  }
  Tenant& tenant = place->second;
  if (tenant.sequences == 0) {
    double least = -1;
    for (const auto& [name, other] : tenants_) {
      if (other.sequences > 0) least = least < 0 ? other.tokens : std::min(least, other.tokens);
    }
    tenant.tokens = std::max(tenant.tokens, least);
  }
  tenant.sequences++;
}

void WaitingQueue::PushFront(std::unique_ptr<Sequence>&& sequence) { Insert(std::move(sequence), /*front=*/true); }

int32_t WaitingQueue::HeadPriority() const {
  for (const auto& [priority, c] : classes_) {
    if (c.passed_over >= kMostPassedOver) return priority;
  }
  return classes_.begin()->first;
}

Sequence* WaitingQueue::Head() const {
  if (size_ == 0) return nullptr;
  Sequence* head = nullptr;
  double least = 0;
  for (const auto& [tenant, queue] : classes_.at(HeadPriority()).of_tenant) {
    Sequence* first = queue.front().get();
    const double tokens = tenants_.at(tenant).tokens;
    if (head == nullptr || tokens < least || (tokens == least && first->id < head->id)) head = first, least = tokens;
  }
  return head;
}

std::unique_ptr<Sequence> WaitingQueue::Take(std::deque<std::unique_ptr<Sequence>>& queue, size_t i) {
  std::unique_ptr<Sequence> sequence = std::move(queue[i]);
  queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(i));
  return sequence;
}

void WaitingQueue::EraseIfEmpty(int32_t priority, const std::string& tenant) {
  const auto at = classes_.find(priority);
  if (at->second.of_tenant.at(tenant).empty()) at->second.of_tenant.erase(tenant);
  if (at->second.of_tenant.empty()) classes_.erase(at);
}

std::unique_ptr<Sequence> WaitingQueue::TakeHead() {
  const Sequence* head = Head();
  RIDGE_CHECK(head != nullptr);
  Class& from = classes_.at(head->priority);
  from.passed_over = 0;
  for (auto at = classes_.upper_bound(head->priority); at != classes_.end(); ++at) at->second.passed_over++;
  std::unique_ptr<Sequence> sequence = Take(from.of_tenant.at(head->tenant), 0);
  size_--;
  EraseIfEmpty(sequence->priority, sequence->tenant);
  return sequence;
}

std::unique_ptr<Sequence> WaitingQueue::Remove(RequestId id) {
  for (auto& [priority, c] : classes_) {
    for (auto& [tenant, queue] : c.of_tenant) {
      const auto at = std::ranges::find_if(queue, [id](const auto& sequence) { return sequence->id == id; });
      if (at == queue.end()) continue;
      std::unique_ptr<Sequence> sequence = Take(queue, static_cast<size_t>(at - queue.begin()));
      size_--;
      EraseIfEmpty(sequence->priority, sequence->tenant);
      return sequence;
    }
  }
  return nullptr;
}

void WaitingQueue::Charge(const Sequence& sequence, int64_t tokens) {
  tenants_.at(sequence.tenant).tokens += static_cast<double>(tokens);
}

void WaitingQueue::Leave(const Sequence& sequence) {
  const auto at = tenants_.find(sequence.tenant);
  if (--at->second.sequences == 0) tenants_.erase(at);
}

const Sequence* WaitingQueue::Find(RequestId id) const {
  for (const auto& [priority, c] : classes_) {
    for (const auto& [tenant, queue] : c.of_tenant) {
      for (const auto& sequence : queue) {
        if (sequence->id == id) return sequence.get();
      }
    }
  }
  return nullptr;
}

std::vector<const Sequence*> WaitingQueue::All() const {
  std::vector<const Sequence*> all;
  for (const auto& [priority, c] : classes_) {
    for (const auto& [tenant, queue] : c.of_tenant) {
      for (const auto& sequence : queue) all.push_back(sequence.get());
    }
  }
  return all;
}

}  // namespace ridge::engine
