// Seeded faults of the index: as a whole, in its records, and between its tables.
#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <cstring>
#include <filesystem>

#include "cache/index/tables.h"
#include "tests/tools/fsck_seeded.h"

namespace prefixfs {
namespace {

namespace fs = std::filesystem;
using seed::IndexEditor;
constexpr const char* kOtherUuid = "01234567-89ab-cdef-0123-456789abcdef";

// Changes the record of one inode, and its entries with it.
void Alter(IndexEditor& editor, const Inode& before, const Inode& after) {
  editor.Remove("dentries", DentryKey(before.parent, DefaultNameHash(before.name), before.ino));
  editor.Remove("children", ChildKey(before.parent, before.ino));
  const char type = ChildType(after.mode);
  editor.Put("dentries", DentryKey(after.parent, DefaultNameHash(after.name), after.ino), {});
  editor.Put("children", ChildKey(after.parent, after.ino), {&type, 1});
  editor.PutInode(after);
}

void AlterRecordBytes(FsckFixture& f, void (*change)(std::string&)) {
  IndexEditor editor(f.first());
  const Inode victim = editor.FindInode("victim");
  std::string record = editor.Get("inodes", InodeKey(victim.ino)).value();
  change(record);
  editor.Put("inodes", InodeKey(victim.ino), record);
}

void PatchData(FsckFixture& f, off_t offset, int64_t add) {
  Fd fd(::open((f.first() + "/index/data.mdb").c_str(), O_RDWR));
  int64_t value = 0;
  ASSERT_EQ(::pread(fd.get(), &value, 8, offset), 8);
  value += add;
  ASSERT_EQ(::pwrite(fd.get(), &value, 8, offset), 8);
}

// ---- the index as a whole

const Seed kIndexSeeds[] = {
    {"StateDamaged",
     [](FsckFixture& f) { seed::WriteText(f.first() + "/index/STATE", "what"); },
     {"index-state"}},
    {"StateMissing",
     [](FsckFixture& f) { fs::remove(f.first() + "/index/STATE"); },
     {"index-state"}},
    {"DataChangedAfterTheStop",
     [](FsckFixture& f) {
       const std::string path = f.first() + "/index/STATE";
       std::string text = seed::ReadText(path);
       seed::WriteText(path, Flipped(text, text.size() - 2));
     },
     {"index-digest"}},
    {"IndexTruncated",
     [](FsckFixture& f) {
       seed::WriteState(f.first(), CurrentBootId(), "clean");
       fs::resize_file(f.first() + "/index/data.mdb", 8192);
     },
     {"index-unreadable"}},
    {"IndexOverwritten",
     [](FsckFixture& f) {
       const std::string path = f.first() + "/index/data.mdb";
       const size_t size = fs::file_size(path);
       seed::WriteState(f.first(), CurrentBootId(), "clean");
       seed::WriteText(path, std::string(size, 'x'));
     },
     {"index-unreadable"}},
    {"PagesThatNobodyHas",
     [](FsckFixture& f) {
       { IndexEditor editor(f.first()); }
       // mm_last_pg of both meta pages
       PatchData(f, 136, 1);
       PatchData(f, 4096 + 136, 1);
     },
     {"index-pages"}},
    {"IndexOfOtherDrives",
     [](FsckFixture& f) {
       IndexEditor editor(f.first());
       editor.Put(nullptr, meta_key::kPoolUuid, Seal(meta_key::kPoolUuid, kOtherUuid));
     },
     {"index-pool"}},
    {"SettingDamaged",
     [](FsckFixture& f) {
       IndexEditor editor(f.first());
       editor.Put(nullptr, meta_key::kFormat, "0123456789abcdef");
     },
     {"setting"}},
    {"FormatUnknown",
     [](FsckFixture& f) {
       IndexEditor editor(f.first());
       editor.Put(nullptr, meta_key::kFormat, Seal(meta_key::kFormat, Key().Number(2)));
     },
     {"setting"}},
    {"OlderStateOfTheIndex",
     [](FsckFixture& f) {
       IndexEditor editor(f.first());
       const auto pool = editor.Get(nullptr, meta_key::kPoolUuid);
       editor.Put(nullptr, meta_key::kPoolUuid, *pool);
       editor.KeepTxnSetting();
     },
     {"setting"}},
    {"NextInoTooLow",
     [](FsckFixture& f) {
       IndexEditor editor(f.first());
       editor.Put(nullptr, meta_key::kNextIno, Seal(meta_key::kNextIno, Key().Number(3)));
     },
     {"next-ino"}},
};

// ---- tables

const Seed kTableSeeds[] = {
    {"RecordWithABadDigest",
     [](FsckFixture& f) { AlterRecordBytes(f, [](std::string& r) { r = Flipped(r, 40); }); },
     {"inode-record"}},
    {"RecordOfAnotherVersion",
     [](FsckFixture& f) { AlterRecordBytes(f, [](std::string& r) { r = Flipped(r, 4); }); },
     {"inode-record"}},
    {"RecordThatBreaksARule",
     [](FsckFixture& f) {
       AlterRecordBytes(f, [](std::string& r) {
         r[156] = '/';
         const uint64_t digest = XXH3_64bits(r.data() + 16, r.size() - 16);
         std::memcpy(r.data() + 8, &digest, 8);
       });
     },
     {"inode-record"}},
    {"RootMissing",
     [](FsckFixture& f) { IndexEditor(f.first()).Remove("inodes", InodeKey(1)); },
     {"root-missing", "parent-missing"}},
    {"DentryWithoutInode",
     [](FsckFixture& f) {
       IndexEditor editor(f.first());
       editor.Put("dentries", DentryKey(1, 7, 40), {});
     },
     {"dentry-without-inode"}},
    {"InodeGone",
     [](FsckFixture& f) {
       IndexEditor editor(f.first());
       editor.Remove("inodes", InodeKey(editor.FindInode("victim").ino));
     },
     {"dentry-without-inode", "child-extra", "block-orphan"}},
    {"DirectoryGone",
     [](FsckFixture& f) {
       IndexEditor editor(f.first());
       editor.Remove("inodes", InodeKey(editor.FindInode("dir").ino));
     },
     {"dentry-without-inode", "child-extra", "parent-missing", "record-orphan"}},
    {"InodeWithoutDentry",
     [](FsckFixture& f) {
       IndexEditor editor(f.first());
       const Inode victim = editor.FindInode("victim");
       editor.Remove("dentries", DentryKey(1, DefaultNameHash("victim"), victim.ino));
     },
     {"dentry-missing"}},
    {"DentryUnderAnotherHash",
     [](FsckFixture& f) {
       IndexEditor editor(f.first());
       const Inode victim = editor.FindInode("victim");
       editor.Remove("dentries", DentryKey(1, DefaultNameHash("victim"), victim.ino));
       editor.Put("dentries", DentryKey(1, DefaultNameHash("other"), victim.ino), {});
     },
     {"dentry-mismatch"}},
    {"DentryInAnotherDirectory",
     [](FsckFixture& f) {
       IndexEditor editor(f.first());
       const Inode victim = editor.FindInode("victim"), dir = editor.FindInode("dir");
       editor.Put("dentries", DentryKey(dir.ino, DefaultNameHash("victim"), victim.ino), {});
     },
     {"dentry-mismatch"}},
    {"TwoInodesOfOneName",
     [](FsckFixture& f) {
       IndexEditor editor(f.first());
       const Inode twin = editor.FindInode("twin");
       Inode renamed = twin;
       renamed.name = "victim";
       Alter(editor, twin, renamed);
       seed::SetHeaderInode(f.FileOf(twin), renamed);
     },
     {"name-twice"},
     {"victim", "twin"}},
    {"ListingOfNobody",
     [](FsckFixture& f) { IndexEditor(f.first()).Put("children", ChildKey(1, 40), "\x08"); },
     {"child-extra"}},
    {"ListingInAnotherDirectory",
     [](FsckFixture& f) {
       IndexEditor editor(f.first());
       const Ino dir = editor.FindInode("dir").ino;
       editor.Put("children", ChildKey(dir, editor.FindInode("victim").ino), "\x08");
     },
     {"child-extra"}},
    {"ListingMissing",
     [](FsckFixture& f) {
       IndexEditor editor(f.first());
       editor.Remove("children", ChildKey(1, editor.FindInode("victim").ino));
     },
     {"child-missing"}},
    {"ListingOfAnotherType",
     [](FsckFixture& f) {
       IndexEditor editor(f.first());
       editor.Put("children", ChildKey(1, editor.FindInode("victim").ino), "\x04");
     },
     {"child-type"}},
    {"HashOfNobody",
     [](FsckFixture& f) { IndexEditor(f.first()).Put("hashes", HashKey("hash", 40), {}); },
     {"hash-extra"}},
    {"HashOfAnother",
     [](FsckFixture& f) {
       IndexEditor editor(f.first());
       editor.Put("hashes", HashKey("hash", editor.FindInode("victim").ino), {});
     },
     {"hash-extra"}},
    {"HashMissing",
     [](FsckFixture& f) {
       IndexEditor editor(f.first());
       editor.Remove("hashes", editor.FirstKey("hashes"));
     },
     {"hash-missing"}},
    {"ModelMissing",
     [](FsckFixture& f) {
       IndexEditor editor(f.first());
       editor.Remove("models", editor.FirstKey("models"));
     },
     {"model-missing"}},
    {"ModelDamaged",
     [](FsckFixture& f) {
       IndexEditor editor(f.first());
       editor.Put("models", editor.FirstKey("models"), "no digest here");
     },
     {"model-damaged"}},
    {"ParentMissing",
     [](FsckFixture& f) {
       IndexEditor editor(f.first());
       const Inode victim = editor.FindInode("victim");
       Inode lost = victim;
       lost.parent = 40;
       Alter(editor, victim, lost);
       seed::SetHeaderInode(f.FileOf(victim), lost);
     },
     {"parent-missing"},
     {"victim"}},
    {"ParentIsAFile",
     [](FsckFixture& f) {
       IndexEditor editor(f.first());
       const Inode victim = editor.FindInode("victim");
       Inode lost = victim;
       lost.parent = editor.FindInode("twin").ino;
       Alter(editor, victim, lost);
       seed::SetHeaderInode(f.FileOf(victim), lost);
     },
     {"parent-missing"},
     {"victim"}},
    {"DirectoriesInACircle",
     [](FsckFixture& f) {
       IndexEditor editor(f.first());
       const Inode dir = editor.FindInode("dir"), sub = editor.FindInode("sub");
       Inode lost = dir;
       lost.parent = sub.ino;
       Alter(editor, dir, lost);
       for (const std::string& drive : {f.first(), f.second()})
         seed::SetHeaderInode(drive + seed::RecordPath(dir.ino), lost);
     },
     {"parent-loop"},
     {"below0", "below1", "below2", "below3", "below4", "below5", "deep", "link"},
     true,
     {"record-orphan"}},
    {"TwoInodesOfOneBlock",
     [](FsckFixture& f) {
       IndexEditor editor(f.first());
       Inode victim = editor.FindInode("victim");
       const Inode twin = editor.FindInode("twin");
       victim.block = twin.block;
       victim.drive = twin.drive;
       editor.PutInode(victim);
     },
     {"block-twice", "block-orphan"}},
    {"TrashDamaged",
     [](FsckFixture& f) {
       IndexEditor(f.first()).Put("trash", TrashKey({RandomBlockId(), 0}), "damaged.");
     },
     {"trash-damaged"}},
    {"TrashThatIsInUse",
     [](FsckFixture& f) {
       IndexEditor editor(f.first());
       const Inode victim = editor.FindInode("victim");
       const Key key = TrashKey({victim.block, victim.drive});
       editor.Put("trash", key, Seal(key, {}));
     },
     {"trash-named"}},
};

TEST_P(FsckSeeded, IsFoundAndRepaired) { ExpectFoundAndRepaired(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Index, FsckSeeded, testing::ValuesIn(kIndexSeeds), FsckSeeded::NameOf);
INSTANTIATE_TEST_SUITE_P(Tables, FsckSeeded, testing::ValuesIn(kTableSeeds), FsckSeeded::NameOf);

}  // namespace
}  // namespace prefixfs
