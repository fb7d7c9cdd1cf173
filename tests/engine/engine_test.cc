// Every client of the contract, eight of them at once, each with a second process that is told of
// every finished block and then probes, reads and compares each byte; then the same blocks again
// after a new mount.
#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>

#include "tests/engine/clients.h"
#include "tests/support/child.h"
#include "tests/support/fail.h"
#include "tests/support/mount.h"

namespace prefixfs::engine {
namespace {

using support::Channel;
using support::Check;
using support::Child;
using support::Gate;
using support::Mount;
using support::NativeMode;

constexpr uint32_t kActors = 8;
constexpr uint32_t kPerSize = 3;

uint32_t BlocksPerActor(const Client& client) {
  return static_cast<uint32_t>(client.sizes.size()) * kPerSize;
}

uint64_t SizeOf(const Client& client, uint32_t index) {
  return client.sizes[index % client.sizes.size()];
}

uint64_t SeedFor(const Key& key) {
  return 0xB10C'0000'0000ull + key.actor * 1'000'003ull + key.index;
}

Place PlaceFor(const Client& client, const std::string& root) {
  Place place{.root = root, .blocks = BlocksPerActor(client)};
  place.max_bytes = *std::max_element(client.sizes.begin(), client.sizes.end());
  return place;
}

void ReadAndVerify(const Client& client, const Place& place, const Key& key) {
  const std::string who =
      "actor " + std::to_string(key.actor) + " block " + std::to_string(key.index);
  const uint64_t size = SizeOf(client, key.index);
  Check(client.probe(place, key), who + ": the probe does not find it");
  const auto data = client.read(place, key, size);
  Check(data.has_value(), who + ": absent after a positive probe");
  const std::string problem = support::Verify(*data, SeedFor(key), size);
  Check(problem.empty(), who + ": " + problem);
}

void WriteAll(const Client& client, const Place& place, uint32_t actor, Channel* reader) {
  client.start(place, actor);
  for (uint32_t index = 0; index < place.blocks; ++index) {
    const Key key{actor, index};
    client.write(place, key, support::Pattern(SizeOf(client, index), SeedFor(key)));
    if (reader != nullptr) {
      reader->SendToB(std::to_string(index));
    } else {
      ReadAndVerify(client, place, key);
    }
  }
}

void FollowAndVerify(const Client& client, const Place& place, uint32_t actor, Channel& writer) {
  for (uint32_t done = 0; done < place.blocks; ++done) {
    ReadAndVerify(client, place, {actor, static_cast<uint32_t>(std::stoul(writer.ReceiveAtB()))});
  }
}

class Engine : public ::testing::TestWithParam<std::string> {
 protected:
  const Client& client() { return *FindClient(GetParam()); }
  // Room for all blocks and every writer's reservation: nothing is evicted here.
  Mount mount_{{.drive_bytes = 3ull << 30, .capacity = "1600M"}};
};

using EngineSameNames = Engine;

// The clients that use O_DIRECT, with sizes for which they do without it elsewhere.
class EngineDirect : public Engine {
 protected:
  void SetUp() override {
    if (NativeMode()) GTEST_SKIP() << "XFS refuses it";
    SetDirectAtAnySize(true);
  }
  void TearDown() override { SetDirectAtAnySize(false); }
};

void ExpectEveryBlockEverywhere(const Client& me, Mount& mount) {
  const Place place = PlaceFor(me, mount.path());
  std::vector<Channel> channels(kActors);
  std::vector<Child> processes;
  Gate gate;
  for (uint32_t actor = 0; actor < kActors; ++actor) {
    Channel* channel = me.shared ? &channels[actor] : nullptr;
    processes.emplace_back([&, actor, channel] {
      gate.Wait();
      WriteAll(me, place, actor, channel);
    });
    if (channel == nullptr) continue;
    processes.emplace_back([&, actor, channel] { FollowAndVerify(me, place, actor, *channel); });
  }
  gate.Open();
  for (Child& process : processes) ASSERT_NO_THROW(process.Join());
  if (!me.shared) return;

  mount.Remount();
  support::RunInProcess([&] {
    for (uint32_t actor = 0; actor < kActors; ++actor) {
      for (uint32_t index = 0; index < place.blocks; ++index) {
        ReadAndVerify(me, place, {actor, index});
      }
    }
  });
}

TEST_P(Engine, EveryBlockIsThereForASecondProcessAndAfterANewMount) {
  ExpectEveryBlockEverywhere(client(), mount_);
}

TEST_P(EngineDirect, EveryBlockOfAnySizeIsThereForASecondProcessAndAfterANewMount) {
  ExpectEveryBlockEverywhere(client(), mount_);
}

// The reader cannot know whose version it meets, but it must be one writer's, whole.
void ReadSomeVersion(const Client& client, const Place& place, const Key& key) {
  const uint64_t size = SizeOf(client, key.index);
  if (!client.probe(place, key)) return;
  const auto data = client.read(place, key, size);
  if (!data) return;
  const uint64_t seed = support::SeedOf(*data);
  const uint64_t first = SeedFor({0, key.index});
  const uint64_t last = SeedFor({kActors - 1, key.index});
  Check(seed >= first && seed <= last, "a block of nobody: seed " + std::to_string(seed));
  const std::string problem = support::Verify(*data, seed, size);
  Check(problem.empty(), "two versions in one block: " + problem);
}

TEST_P(EngineSameNames, WritersNeverMixBytes) {
  const Client& me = client();
  if (me.same_key == SameKey::kVersioned && NativeMode()) GTEST_SKIP() << "needs versions";
  const Place place = PlaceFor(me, mount_.path());
  std::vector<Child> processes;
  Gate gate;
  for (uint32_t actor = 0; actor < kActors; ++actor) {
    processes.emplace_back([&, actor] {
      gate.Wait();
      me.start(place, 0);
      for (uint32_t index = 0; index < place.blocks; ++index) {
        me.write(place, {0, index}, support::Pattern(SizeOf(me, index), SeedFor({actor, index})));
      }
    });
  }
  for (int reader = 0; reader < 2; ++reader) {
    processes.emplace_back([&] {
      gate.Wait();
      for (uint32_t round = 0; round < 3 * place.blocks; ++round) {
        ReadSomeVersion(me, place, {0, round % place.blocks});
      }
    });
  }
  gate.Open();
  for (Child& process : processes) ASSERT_NO_THROW(process.Join());
  support::RunInProcess([&] {
    for (uint32_t index = 0; index < place.blocks; ++index) {
      Check(me.probe(place, {0, index}),
            "block " + std::to_string(index) + " is absent in the end");
      ReadSomeVersion(me, place, {0, index});
    }
  });
}

std::vector<std::string> ClientNames(bool same_names) {
  std::vector<std::string> names;
  for (const Client& client : Clients()) {
    if (!same_names || client.same_key != SameKey::kUndefined) names.push_back(client.name);
  }
  return names;
}

std::string TestName(const ::testing::TestParamInfo<std::string>& parameter) {
  std::string name = parameter.param;
  for (char& c : name) c = isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Clients, Engine, ::testing::ValuesIn(ClientNames(false)), TestName);
INSTANTIATE_TEST_SUITE_P(Clients, EngineDirect,
                         ::testing::Values("vllm-direct", "nixl-posix-direct", "sglang-nixl",
                                           "lmcache-local-direct", "lmcache-fs"),
                         TestName);
INSTANTIATE_TEST_SUITE_P(Clients, EngineSameNames, ::testing::ValuesIn(ClientNames(true)),
                         TestName);

TEST(Crawler, RemovesTheOldestBesideWritersAndLeavesNothingWhenAskedTo) {
  Mount mount;
  const Client& client = *FindClient("crawler");
  const Place place{.root = mount.path(), .blocks = 40};
  std::vector<Child> writers;
  for (uint32_t actor = 0; actor < 4; ++actor) {
    writers.emplace_back([&, actor] {
      for (uint32_t index = 0; index < place.blocks; ++index) {
        const Key key{actor, index};
        // The crawler may remove the directory between mkdir and create: the client then makes it
        // again.
        for (int attempt = 0;; ++attempt) {
          try {
            client.write(place, key, support::Pattern(70'273, SeedFor(key)));
            break;
          } catch (const support::SysFailure& failure) {
            if (failure.error != ENOENT || attempt == 10) throw;
          }
        }
        const auto data = client.read(place, key, 70'273);
        if (data)
          Check(support::Verify(*data, SeedFor(key), 70'273).empty(),
                "wrong bytes beside the crawler");
      }
    });
  }
  uint32_t removed = 0;
  for (int round = 0; round < 20; ++round) removed += CrawlAndEvict(mount.path(), 30);
  for (Child& writer : writers) ASSERT_NO_THROW(writer.Join());
  removed += CrawlAndEvict(mount.path(), 0);
  EXPECT_EQ(removed, 160u);
  DIR* stream = opendir(mount.path().c_str());
  ASSERT_NE(stream, nullptr);
  while (const dirent* entry = readdir(stream)) {
    EXPECT_TRUE(strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
        << entry->d_name;
  }
  closedir(stream);
}

}  // namespace
}  // namespace prefixfs::engine
