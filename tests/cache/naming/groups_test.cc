#include <gtest/gtest.h>

#include "cache/naming/naming.h"

namespace prefixfs {
namespace {

class Groups : public ::testing::Test {
 protected:
  std::string Sibling(std::string_view name) { return naming_->GroupOf("dir", name).sibling; }
  std::unique_ptr<Naming> naming_ = std::move(Naming::Make({}, {})).value();
  const std::string hash_ = std::string(64, 'a');
};

TEST_F(Groups, DataAndItsDescription) {
  EXPECT_EQ(Sibling("key.kvcache.safetensors"), "key.kvcache.safetensors.metadata");
  EXPECT_EQ(Sibling("key.kvcache.safetensors.metadata"), "key.kvcache.safetensors");
  EXPECT_EQ(Sibling("key.weka1.metadata"), "key.weka1");
  EXPECT_TRUE(naming_->IsDescription("key.weka1.metadata"));
  EXPECT_FALSE(naming_->IsDescription("notes.metadata"));
  EXPECT_EQ(Sibling("notes.metadata"), "");
}

TEST_F(Groups, KeysAndValues) {
  EXPECT_EQ(Sibling(hash_ + "_org-Model_0_8_k"), hash_ + "_org-Model_0_8_v");
  EXPECT_EQ(Sibling(hash_ + "_0_v"), hash_ + "_0_k");
  EXPECT_EQ(Sibling(hash_ + "_k"), hash_ + "_v");
  EXPECT_EQ(Sibling("notes_k"), "");
}

TEST_F(Groups, FoldersOfLayers) {
  EXPECT_TRUE(naming_->GroupOf(std::string(40, 'b'), "_data.safetensors").directory);
  EXPECT_TRUE(naming_->GroupOf(hash_, "model.layers.0.self_attn.attn.safetensors").directory);
  EXPECT_FALSE(naming_->GroupOf("models", "model.safetensors").directory);
  EXPECT_FALSE(naming_->GroupOf(hash_, "block.bin").directory);
}

}  // namespace
}  // namespace prefixfs
