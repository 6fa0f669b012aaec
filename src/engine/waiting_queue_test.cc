#include "engine/waiting_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>

#include "base/test_cpu_time.h"

namespace ridge::engine {
namespace {

std::unique_ptr<Sequence> New(RequestId id, int32_t priority = 0, std::string tenant = "") {
  auto sequence = std::make_unique<Sequence>();
  sequence->id = id;
  sequence->priority = priority;
  sequence->tenant = std::move(tenant);
  return sequence;
}

std::vector<RequestId> Drain(WaitingQueue& queue) {
  std::vector<RequestId> order;
  while (!queue.empty()) {
    const RequestId head = queue.Head()->id;
    const auto sequence = queue.TakeHead();
    EXPECT_EQ(sequence->id, head);
    order.push_back(head);
    queue.Leave(*sequence);
  }
  return order;
}

TEST(WaitingQueue, HigherPrioritiesFirstAndWithinOneWhoCameFirst) {
  WaitingQueue queue;
  EXPECT_EQ(queue.Head(), nullptr);
  for (RequestId id = 1; id <= 6; id++) queue.Push(New(id, id % 2 == 0 ? 1 : -1));
  EXPECT_EQ(queue.size(), 6u);
  EXPECT_EQ(Drain(queue), (std::vector<RequestId>{2, 4, 6, 1, 3, 5}));
}

TEST(WaitingQueue, ThePreemptedComeBeforeAllThatWait) {
  WaitingQueue queue;
  queue.Push(New(1));
  queue.Push(New(2));
  auto first = queue.TakeHead();
  queue.Push(New(3));
  queue.PushFront(std::move(first));
  EXPECT_EQ(Drain(queue), (std::vector<RequestId>{1, 2, 3}));
}

TEST(WaitingQueue, LowPrioritiesAreNotPassedOverForEver) {
  WaitingQueue queue;
  queue.Push(New(1, 0));
  queue.Push(New(2, -5));
  RequestId id = 3;
  std::map<RequestId, int64_t> after;
  for (int64_t n = 0; n < 60; n++) {
    queue.Push(New(id++, 9));
    const auto sequence = queue.TakeHead();
    if (sequence->id <= 2) after[sequence->id] = n;
    queue.Leave(*sequence);
  }
  EXPECT_EQ(after[1], WaitingQueue::kMostPassedOver);
  EXPECT_EQ(after[2], WaitingQueue::kMostPassedOver + 1);
}

TEST(WaitingQueue, TenantsGetEqualTokensWhoeverAsksMore) {
  WaitingQueue queue;
  RequestId id = 1;
  for (int i = 0; i < 100; i++) queue.Push(New(id++, 0, "many"));
  for (int i = 0; i < 10; i++) queue.Push(New(id++, 0, "few"));
  std::map<std::string, int64_t> tokens;
  for (int i = 0; i < 30 && !queue.empty(); i++) {
    const auto sequence = queue.TakeHead();
    const int64_t cost = sequence->tenant == "many" ? 50 : 150;
    queue.Charge(*sequence, cost);
    tokens[sequence->tenant] += cost;
    queue.Leave(*sequence);
  }
  EXPECT_NEAR(static_cast<double>(tokens["many"]), static_cast<double>(tokens["few"]), 150);
}

TEST(WaitingQueue, BeingAwayEarnsNothing) {
  WaitingQueue queue;
  queue.Push(New(1, 0, "old"));
  queue.Push(New(2, 0, "old"));
  queue.Push(New(3, 0, "old"));
  const auto running = queue.TakeHead();
  queue.Charge(*running, 1000);
  queue.Push(New(4, 0, "new"));
  queue.Push(New(5, 0, "new"));
  EXPECT_EQ(queue.Head()->id, 2u) << "level with the old one, which came first";
  auto sequence = queue.TakeHead();
  queue.Charge(*sequence, 10);
  EXPECT_EQ(queue.Head()->id, 4u);
}

TEST(WaitingQueue, RemovesFromAnywhere) {
  WaitingQueue queue;
  for (RequestId id = 1; id <= 4; id++) queue.Push(New(id, static_cast<int32_t>(id % 2), id > 2 ? "b" : "a"));
  EXPECT_EQ(queue.Remove(9), nullptr);
  const auto second = queue.Remove(2);
  ASSERT_NE(second, nullptr);
  queue.Leave(*second);
  EXPECT_EQ(queue.size(), 3u);
  EXPECT_EQ(queue.All().size(), 3u);
  EXPECT_EQ(Drain(queue), (std::vector<RequestId>{1, 3, 4}));
}

// Users that come and vanish by the thousands must not hold up those that run: a scan of all for each would take minutes here.
TEST(WaitingQueue, ManyTenantsComeAndGoInLittleTime) {
  constexpr RequestId kMany = 50'000;
  const double begin = test::ThreadCpuSeconds();
  WaitingQueue queue;
  for (RequestId id = 1; id <= kMany; id++) queue.Push(New(id, static_cast<int32_t>(id % 3), std::to_string(id)));
  std::vector<RequestId> ids(kMany);
  for (RequestId id = 1; id <= kMany; id++) ids[id - 1] = id;
  std::shuffle(ids.begin(), ids.end(), std::mt19937(7));
  for (const RequestId id : ids) {
    ASSERT_NE(queue.Find(id), nullptr);
    const auto gone = queue.Remove(id);
    ASSERT_EQ(gone->id, id);
    queue.Leave(*gone);
  }
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.Head(), nullptr);
  EXPECT_LT(test::ThreadCpuSeconds() - begin, 10.0);
}

}  // namespace
}  // namespace ridge::engine
