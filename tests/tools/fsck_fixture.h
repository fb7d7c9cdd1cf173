// A store on two drives with every kind of name, closed, for fsck to look at.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>

#include "tests/cache/cache_fixture.h"
#include "tests/tools/fsck_seed.h"
#include "tools/fsck/fsck.h"

namespace prefixfs {

class FsckFixture : public CacheFixture {
 public:
  static constexpr const char* kHashed = "llama@1@0@00000000deadbeef@half.pt";

  std::string first() const { return directory_ + "/nvme"; }
  std::string second() const { return directory_ + "/nvme2"; }
  // The drive that a block is on, and its file.
  std::string DriveOf(const Inode& inode) const { return inode.drive == 0 ? first() : second(); }
  std::string FileOf(const Inode& inode) const {
    return DriveOf(inode) + seed::BlockPath(inode.block);
  }
  Inode InodeOf(std::string_view name) { return seed::IndexEditor(first()).FindInode(name); }
  std::string FileOf(std::string_view name) { return FileOf(InodeOf(name)); }

 protected:
  using Place = std::pair<std::string, std::string>;  // directory ("" is the root) and name

  void SetUp() override {
    CacheFixture::SetUp();
    if (HasFatalFailure()) return;
    cache_.reset();
    config_.nvme.push_back(second());
    Start();
    Fill();
    AwaitChecksums();
    cache_.reset();
  }

  void Fill() {
    const Ino dir = cache_->MakeNode(kRootIno, "dir", S_IFDIR | 0755, "", Self())->inode.ino;
    const Ino sub = cache_->MakeNode(dir, "sub", S_IFDIR | 0700, "", Self())->inode.ino;
    ASSERT_TRUE(cache_->MakeNode(dir, "link", S_IFLNK | 0777, "../victim", Self()).ok());
    PutKnown({"", "victim"}, kRootIno);
    PutKnown({"", "twin"}, kRootIno);
    PutKnown({"", kHashed}, kRootIno);
    PutKnown({"", "kv_cache.data"}, kRootIno);
    for (int i = 0; i < 6; ++i) {
      PutKnown({"", "plain" + std::to_string(i)}, kRootIno);
      PutKnown({"dir", "below" + std::to_string(i)}, dir);
    }
    PutKnown({"sub", "deep"}, sub);
  }
  void PutKnown(const Place& place, Ino parent) {
    std::string content = place.second;
    content.resize(3000 + 100 * contents_.size(), '.');
    Put(place.second, content, parent);
    contents_[place] = content;
  }

  // What a client reads in the whole store, where it is not what was put there.
  std::set<std::string> Wrong() {
    std::set<std::string> wrong;
    const Ino dir = Find("dir", Stranger());
    const Ino sub = Find("sub", Stranger(), dir);
    for (const auto& [place, content] : contents_) {
      const Ino parent = place.first.empty() ? kRootIno : place.first == "dir" ? dir : sub;
      const Ino ino = Find(place.second, Stranger(), parent);
      Result<HandlePtr> handle = cache_->Open(ino, O_RDONLY, Stranger(), true);
      if (!handle.ok() || ContentOf(**handle) != content) wrong.insert(place.second);
      if (handle.ok()) cache_->Release(std::move(handle).value());
    }
    if (ReadLinkIn(dir) != "../victim") wrong.insert("link");
    return wrong;
  }
  std::string ReadLinkIn(Ino dir) {
    const Result<std::string> target = cache_->ReadLink(Find("link", Stranger(), dir));
    return target.ok() ? *target : target.status().ToString();
  }

  fsck::Report Fsck(bool repair = false, bool checksums = true) {
    Result<fsck::Report> report =
        fsck::Run({.drives = config_.nvme, .repair = repair, .checksums = checksums});
    EXPECT_TRUE(report.ok()) << report.status().ToString();
    return report.ok() ? *report : fsck::Report();
  }
  static std::set<std::string> Kinds(const fsck::Report& report) {
    std::set<std::string> kinds;
    for (const fsck::Finding& finding : report.findings)
      kinds.insert(fsck::TextOf(finding.kind).name);
    return kinds;
  }
  static std::set<std::string> Errors(fsck::Report report) {
    std::erase_if(report.findings, [](const fsck::Finding& finding) {
      return finding.severity != fsck::Severity::kError;
    });
    return Kinds(report);
  }
  static std::string Describe(const fsck::Report& report) {
    std::string text;
    for (const fsck::Finding& finding : report.findings) {
      text += std::string(finding.severity == fsck::Severity::kError ? "error " : "info ") +
              fsck::TextOf(finding.kind).name + " " + report.Where(finding) + " " + finding.what +
              " " + finding.failure + "\n";
    }
    return text;
  }

  std::map<Place, std::string> contents_;
};

}  // namespace prefixfs
