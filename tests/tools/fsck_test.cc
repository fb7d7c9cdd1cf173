// Seeded faults of drives, backing files and records.
#include <sys/xattr.h>

#include <filesystem>
#include <functional>

#include "cache/store/drive_format.h"
#include "tests/tools/fsck_seeded.h"

namespace prefixfs {
namespace {

namespace fs = std::filesystem;
constexpr const char* kOtherUuid = "01234567-89ab-cdef-0123-456789abcdef";

void SetDriveFile(FsckFixture& f, void (*change)(DriveFormat&)) {
  const std::string path = f.second() + "/PREFIXFS";
  DriveFormat format = FormatFromText(seed::ReadText(path)).value();
  change(format);
  seed::WriteText(path, FormatToText(format));
}

void AlterHeader(FsckFixture& f, void (*change)(Inode&)) {
  const std::string path = f.FileOf("victim");
  Inode header = seed::HeaderInode(path);
  change(header);
  seed::SetHeaderInode(path, header);
}

void MoveFile(const std::string& from, const std::string& to) {
  fs::create_directories(fs::path(to).parent_path());
  fs::permissions(fs::path(to).parent_path(), fs::perms(0711));
  fs::rename(from, to);
}

// ---- drives

const Seed kDriveSeeds[] = {
    {"DriveFileMissing",
     [](FsckFixture& f) { fs::remove(f.second() + "/PREFIXFS"); },
     {"drive-file"}},
    {"DriveFileDamaged",
     [](FsckFixture& f) {
       const std::string path = f.first() + "/PREFIXFS";
       seed::WriteText(path, Flipped(seed::ReadText(path), 30));
     },
     {"drive-file"}},
    {"OtherPool",
     [](FsckFixture& f) {
       SetDriveFile(f, [](DriveFormat& format) { format.pool_uuid = kOtherUuid; });
     },
     {"drive-pool", "drive-absent"},
     {},
     false},
    {"SameSlot",
     [](FsckFixture& f) { SetDriveFile(f, [](DriveFormat& d) { d.slot = 0; }); },
     {"drive-slot", "drive-absent"},
     {},
     false},
    {"ForeignFileAmongBlocks",
     [](FsckFixture& f) { seed::WriteText(f.first() + "/blocks/\x1b[2J", "x"); },
     {"foreign"}},
    {"LinkInPlaceOfABlock",
     [](FsckFixture& f) {
       fs::create_symlink("/etc/passwd", f.first() + "/incoming/" + std::string(32, 'a'));
     },
     {"foreign"}},
    {"ForeignFileAmongRecords",
     [](FsckFixture& f) { seed::WriteText(f.second() + "/records/notes", "x"); },
     {"foreign"}},
    {"ForeignFileInTheIndex",
     [](FsckFixture& f) { seed::WriteText(f.first() + "/index/notes", "x"); },
     {"foreign"}},
    {"DirectoryOpenToOthers",
     [](FsckFixture& f) { fs::permissions(f.first() + "/blocks", fs::perms(0777)); },
     {"access"}},
    {"IndexOpenToOthers",
     [](FsckFixture& f) { fs::permissions(f.first() + "/index", fs::perms(0777)); },
     {"access"}},
    {"BlockOpenToOthers",
     [](FsckFixture& f) { fs::permissions(f.FileOf("victim"), fs::perms(0644)); },
     {"access"}},
    {"DriveOpenToOthers",
     [](FsckFixture& f) { fs::permissions(f.second(), fs::perms(0777)); },
     {"access"}},
    {"BlockOfAnotherUser",
     [](FsckFixture& f) { EXPECT_EQ(::chown(f.FileOf("victim").c_str(), 1, 1), 0); },
     {"access"}},
};

// ---- backing files

const Seed kBlockSeeds[] = {
    {"BlockMissing",
     [](FsckFixture& f) { fs::remove(f.FileOf("victim")); },
     {"block-missing"},
     {"victim"}},
    {"BlockThatNobodyNames",
     [](FsckFixture& f) {
       const std::string path = f.first() + seed::BlockPath(RandomBlockId());
       fs::create_directories(fs::path(path).parent_path());
       fs::permissions(fs::path(path).parent_path(), fs::perms(0711));
       seed::WriteText(path, "orphan");
     },
     {"block-orphan"}},
    {"BlockTooShort",
     [](FsckFixture& f) { fs::resize_file(f.FileOf("victim"), 5); },
     {"block-size"},
     {"victim"}},
    {"OrdinaryFileOfAnotherSize",
     [](FsckFixture& f) { fs::resize_file(f.FileOf("kv_cache.data"), 5); },
     {"block-size"},
     {"kv_cache.data"}},
    {"BlockWithOtherBytes",
     [](FsckFixture& f) {
       const std::string path = f.FileOf("victim");
       Fd fd(::open(path.c_str(), O_WRONLY));
       EXPECT_EQ(::pwrite(fd.get(), "W", 1, 100), 1);
     },
     {"block-content"},
     {"victim"}},
    {"BlockInAnotherFanOut",
     [](FsckFixture& f) {
       const Inode victim = f.InodeOf("victim");
       const std::string other = ToHex(victim.block)[0] == '0' ? "/blocks/ff/" : "/blocks/00/";
       MoveFile(f.FileOf(victim), f.DriveOf(victim) + other + ToHex(victim.block));
     },
     {"block-fan-out"}},
    {"BlockOnAnotherDrive",
     [](FsckFixture& f) {
       const Inode victim = f.InodeOf("victim");
       MoveFile(f.FileOf(victim),
                (victim.drive == 0 ? f.second() : f.first()) + seed::BlockPath(victim.block));
     },
     {"block-drive"}},
    {"BlockOnADriveThatNeverWas",
     [](FsckFixture& f) {
       seed::IndexEditor editor(f.first());
       Inode victim = editor.FindInode("victim");
       const std::string file = f.FileOf(victim);
       victim.drive = 9;
       editor.PutInode(victim);
       fs::remove(file);
     },
     {"block-drive"},
     {"victim"}},
    {"BlockTwiceOnTheDrive",
     [](FsckFixture& f) {
       const Inode victim = f.InodeOf("victim");
       const std::string copy = f.DriveOf(victim) + "/incoming/" + ToHex(victim.block);
       seed::WriteText(copy, "copy");
     },
     {"block-copy"}},
    {"FinishedBlockInIncoming",
     [](FsckFixture& f) {
       const Inode victim = f.InodeOf("victim");
       fs::rename(f.FileOf(victim), f.DriveOf(victim) + "/incoming/" + ToHex(victim.block));
     },
     {"block-incoming"}},
    {"HeaderMissing",
     [](FsckFixture& f) {
       EXPECT_EQ(::removexattr(f.FileOf("victim").c_str(), "trusted.prefixfs"), 0);
     },
     {"header-missing"}},
    {"HeaderDamaged",
     [](FsckFixture& f) {
       const std::string path = f.FileOf("victim");
       seed::SetHeader(path, Flipped(seed::GetHeader(path), 60));
     },
     {"header-damaged"}},
    {"HeaderOfAnotherBlock",
     [](FsckFixture& f) { seed::SetHeader(f.FileOf("victim"), seed::GetHeader(f.FileOf("twin"))); },
     {"header-damaged"}},
    {"HeaderWithAnotherName",
     [](FsckFixture& f) { AlterHeader(f, [](Inode& header) { header.name = "other"; }); },
     {"header-differs"}},
    {"HeaderWithAnotherParent",
     [](FsckFixture& f) { AlterHeader(f, [](Inode& header) { header.parent = 2; }); },
     {"header-differs"}},
    {"HeaderWithAnotherSize",
     [](FsckFixture& f) { AlterHeader(f, [](Inode& header) { header.size = 1; }); },
     {"header-differs"}},
    {"HeaderWithAnotherChecksum",
     [](FsckFixture& f) { AlterHeader(f, [](Inode& header) { header.checksum[3] ^= 1; }); },
     {"header-differs"}},
    {"HeaderWithAnotherMode",
     [](FsckFixture& f) { AlterHeader(f, [](Inode& header) { header.mode ^= 0111; }); },
     {"header-differs"}},
};

// ---- records/

void ForBothRecords(FsckFixture& f, std::string_view name,
                    const std::function<void(const std::string&)>& change) {
  const Ino ino = f.InodeOf(name).ino;
  for (const std::string& drive : {f.first(), f.second()}) change(drive + seed::RecordPath(ino));
}

const Seed kRecordSeeds[] = {
    {"RecordFileMissing",
     [](FsckFixture& f) {
       ForBothRecords(f, "dir", [](const std::string& path) { fs::remove(path); });
     },
     {"record-missing"}},
    {"RecordFileOfNobody",
     [](FsckFixture& f) {
       Inode gone = f.InodeOf("dir");
       gone.ino = 40;
       gone.name = "gone";
       const std::string path = f.first() + seed::RecordPath(gone.ino);
       fs::create_directories(fs::path(path).parent_path());
       fs::permissions(fs::path(path).parent_path(), fs::perms(0711));
       seed::WriteText(path, "");
       seed::SetHeaderInode(path, gone);
     },
     {"record-orphan"}},
    {"RecordFileDamaged",
     [](FsckFixture& f) {
       ForBothRecords(f, "link", [](const std::string& path) {
         seed::SetHeader(path, Flipped(seed::GetHeader(path), 60));
       });
     },
     {"record-damaged"}},
    {"RecordFileOfAnotherVersion",
     [](FsckFixture& f) {
       ForBothRecords(f, "dir", [](const std::string& path) {
         seed::SetHeader(path, Flipped(seed::GetHeader(path), 4));
       });
     },
     {"record-damaged"}},
    {"RecordFileWithAnotherName",
     [](FsckFixture& f) {
       ForBothRecords(f, "dir", [](const std::string& path) {
         Inode record = seed::HeaderInode(path);
         record.name = "before";
         seed::SetHeaderInode(path, record);
       });
     },
     {"record-differs"}},
    {"RecordFileWithAnotherTarget",
     [](FsckFixture& f) {
       ForBothRecords(f, "link", [](const std::string& path) {
         Inode record = seed::HeaderInode(path);
         record.target = "../twin";
         seed::SetHeaderInode(path, record);
       });
     },
     {"record-differs"}},
};

TEST_P(FsckSeeded, IsFoundAndRepaired) { ExpectFoundAndRepaired(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Drives, FsckSeeded, testing::ValuesIn(kDriveSeeds), FsckSeeded::NameOf);
INSTANTIATE_TEST_SUITE_P(Blocks, FsckSeeded, testing::ValuesIn(kBlockSeeds), FsckSeeded::NameOf);
INSTANTIATE_TEST_SUITE_P(Records, FsckSeeded, testing::ValuesIn(kRecordSeeds), FsckSeeded::NameOf);

}  // namespace
}  // namespace prefixfs
