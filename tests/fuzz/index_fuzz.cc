// The index's file: edits to a small, whole image of data.mdb. The check must never crash, and an
// index that it takes must read, change and be checked again without crashing.
//
// The input is edits of 6 bytes (kind, page, offset in it, value); a last odd byte says whether the
// digests of records and sealed values are mended afterwards, so that the rules behind them are met
// too.
#include <fcntl.h>
#include <lmdb.h>
#include <unistd.h>
#include <xxhash.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "cache/base/fd.h"
#include "cache/index/index.h"
#include "cache/index/page_check.h"
#include "cache/index/record_format.h"
#include "cache/index/table_check.h"
#include "cache/index/tables.h"
#include "tests/fuzz/fuzz.h"

namespace prefixfs {
namespace {

constexpr size_t kPage = 4096, kEditBytes = 6, kMaxPages = 64;
constexpr size_t kPageHead = 16, kNodeHead = 8;  // struct MDB_page and MDB_node of LMDB 0.9
constexpr uint16_t kLeaf = 0x02;

std::string Directory(std::string_view name) {
  const std::string path = fuzz::ScratchDirectory() + "/" + std::string(name);
  std::filesystem::create_directories(path);
  return path;
}

std::unique_ptr<Index> Open(const std::string& directory) {
  IndexOptions options;
  options.directory = directory;
  options.initial_map = 1 << 20;
  options.max_map = 16 << 20;
  Result<std::unique_ptr<Index>> index = Index::Open(options);
  return index.ok() ? std::move(index).value() : nullptr;
}

Inode MakeInode(Ino ino, Ino parent, uint32_t mode) {
  Inode inode;
  inode.ino = ino;
  inode.parent = parent;
  inode.name = "name" + std::to_string(ino);
  inode.mode = mode;
  if (inode.IsSymlink()) inode.target = std::string(kMaxTarget, 't');  // in pages of its own
  if (!inode.IsFile()) return inode;
  inode.state = FileState::kSealed;
  inode.hash = "hash" + std::to_string(ino / 3);
  return inode;
}

void Fill(Index& index) {
  FUZZ_CHECK(index.SetPoolUuid("pool").ok());
  FUZZ_CHECK(index.RaiseIno(100).ok());
  const Status filled = index.Update([](IndexTxn& txn) -> Status {
    for (const Ino ino : {2, 3}) PFS_TRY(txn.Insert(MakeInode(ino, kRootIno, S_IFDIR | 0755)));
    PFS_TRY(txn.Insert(MakeInode(4, 2, S_IFLNK | 0777)));
    for (Ino ino = 10; ino < 50; ++ino) {
      PFS_TRY(txn.Insert(MakeInode(ino, 2 + ino % 2, S_IFREG | 0644)));
    }
    PFS_TRY(txn.InternModel("a model"));
    return txn.AddTrash({BlockId{1, 2, 3}, 1});
  });
  FUZZ_CHECK(filled.ok());
  // Pages for the free list.
  FUZZ_CHECK(index.Update([](IndexTxn& txn) { return txn.Remove(20); }).ok());
  FUZZ_CHECK(index.Update([](IndexTxn& txn) { return txn.Remove(21); }).ok());
}

const std::string& Image() {
  static const std::string image = [] {
    const std::string directory = Directory("whole");
    {
      const std::unique_ptr<Index> index = Open(directory);
      FUZZ_CHECK(index != nullptr);
      Fill(*index);
    }
    std::ifstream file(directory + "/data.mdb", std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(file), {}};
    FUZZ_CHECK(bytes.size() % kPage == 0 && bytes.size() <= kMaxPages * kPage);
    return bytes;
  }();
  return image;
}

template <typename T>
T Load(const std::string& image, size_t at) {
  T value{};
  if (at + sizeof(value) <= image.size()) std::memcpy(&value, image.data() + at, sizeof(value));
  return value;
}

template <typename T>
void Store(std::string* image, size_t at, T value) {
  if (at + sizeof(value) <= image->size()) std::memcpy(image->data() + at, &value, sizeof(value));
}

void Edit(const uint8_t* edit, std::string* image) {
  const size_t pages = image->size() / kPage;
  if (pages == 0) return;
  uint16_t offset, value;
  std::memcpy(&offset, edit + 2, sizeof(offset));
  std::memcpy(&value, edit + 4, sizeof(value));
  const size_t page = edit[1] % pages, at = page * kPage + offset % kPage;
  switch (edit[0] % 8) {
    case 0:
      return Store(image, at, static_cast<uint8_t>(value));
    case 1:
      return Store(image, at, value);
    case 2:
      return Store(image, at, static_cast<uint16_t>(Load<uint16_t>(*image, at) + value));
    case 3:
      return Store(image, at, static_cast<uint64_t>(static_cast<int16_t>(value)));
    case 4:  // a page over another; LMDB's pages say which they are
      image->replace(page * kPage, kPage, image->substr(value % pages * kPage, kPage));
      return Store(image, page * kPage, static_cast<uint64_t>(page));
    case 5:  // bytes of the same page over others
      return (void)image->replace(at, std::min<size_t>(edit[0], kPage - offset % kPage),
                                  image->substr(page * kPage + value % kPage,
                                                std::min<size_t>(edit[0], kPage - offset % kPage)));
    case 6:
      return image->resize(std::min(value % (kMaxPages * kPage), image->size()));
    default:
      return image->resize(std::min(kMaxPages, pages + value % 4) * kPage);
  }
}

// The value at `value`, of a node with that key, gets the digest that it should have.
void MendValue(std::string* image, std::string_view key, size_t value, size_t bytes) {
  if (bytes >= sizeof(record_format::Head) &&
      Load<uint32_t>(*image, value) == record_format::kMagic) {
    constexpr size_t kFrom = record_format::kDigestedFrom;
    const uint64_t digest = XXH3_64bits(image->data() + value + kFrom, bytes - kFrom);
    return Store(image, value + offsetof(record_format::Head, digest), digest);
  }
  // Keys of 8 bytes are numbers, but for one setting.
  if (bytes < 8 || (key.size() == 8 && key != meta_key::kNextIno)) return;
  const std::string sealed = Seal(key, std::string_view(*image).substr(value, bytes - 8));
  image->replace(value, bytes, sealed);
}

void MendDigests(std::string* image) {
  for (size_t page = 2 * kPage; page + kPage <= image->size(); page += kPage) {
    if (Load<uint16_t>(*image, page + 10) != kLeaf) continue;
    const size_t lower = std::min<size_t>(Load<uint16_t>(*image, page + 12), kPage);
    for (size_t slot = kPageHead; slot + 2 <= lower; slot += 2) {
      const size_t node = page + Load<uint16_t>(*image, page + slot) % kPage;
      const size_t key_bytes = Load<uint16_t>(*image, node + 6);
      const size_t bytes = Load<uint32_t>(*image, node);
      const size_t value = node + kNodeHead + key_bytes;
      if (Load<uint16_t>(*image, node + 4) != 0 || value + bytes > page + kPage) continue;
      const std::string key = image->substr(node + kNodeHead, key_bytes);
      MendValue(image, key, value, bytes);
    }
  }
}

Status CheckTablesOf(const std::string& directory) {
  MDB_env* env = nullptr;
  MDB_txn* txn = nullptr;
  int rc = mdb_env_create(&env);
  if (rc == 0) rc = mdb_env_set_maxdbs(env, 16);
  if (rc == 0) {
    rc = mdb_env_open(env, directory.c_str(), MDB_RDONLY | MDB_NOLOCK | MDB_NOTLS, 0);
  }
  if (rc == 0) rc = mdb_txn_begin(env, nullptr, MDB_RDONLY, &txn);
  Status status = rc == 0 ? CheckTables(txn, DefaultNameHash) : Status(Code::kCorrupt);
  if (txn != nullptr) mdb_txn_abort(txn);
  if (env != nullptr) mdb_env_close(env);
  return status;
}

void ReadAll(const Index& index) {
  const Status all = index.ForEach([&](const Inode& inode) {
    if (inode.ino != kRootIno) FUZZ_CHECK(index.Lookup(inode.parent, inode.name).ok());
    FUZZ_CHECK(index.List(inode.ino, 0, 100).ok());
    FUZZ_CHECK(index.FindByHash(inode.hash, 100).ok());
    return true;
  });
  FUZZ_CHECK(all.ok());
  FUZZ_CHECK(index.Models().ok() && index.Trash().ok());
}

// An index that the check took goes on to work.
void Use(const std::string& directory) {
  {
    const std::unique_ptr<Index> index = Open(directory);
    if (index == nullptr) return;
    ReadAll(*index);
    const Result<Ino> ino = index->NextIno();
    if (!ino.ok()) return;
    const Inode fresh = MakeInode(*ino, kRootIno, S_IFREG | 0644);
    FUZZ_CHECK(index->Update([&](IndexTxn& txn) { return txn.Insert(fresh); }).ok());
    FUZZ_CHECK(index->Update([&](IndexTxn& txn) { return txn.InternModel("new").status(); }).ok());
    std::vector<Inode> some = index->List(2, 0, 5).value();
    FUZZ_CHECK(index
                   ->Update([&](IndexTxn& txn) -> Status {
                     for (const Inode& inode : some) PFS_TRY(txn.Remove(inode.ino));
                     return Ok();
                   })
                   .ok());
    ReadAll(*index);
  }
  std::ifstream file(directory + "/data.mdb", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const Status pages = CheckPages({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  if (!pages.ok()) std::fprintf(stderr, "%s\n", pages.ToString().c_str());
  FUZZ_CHECK(pages.ok() && CheckTablesOf(directory).ok());
}

void Check(const uint8_t* data, size_t size) {
  std::string image = Image();
  for (; size >= kEditBytes; data += kEditBytes, size -= kEditBytes) Edit(data, &image);
  if (size > 0 && data[0] % 2 != 0) MendDigests(&image);
  const Status pages = CheckPages({reinterpret_cast<const uint8_t*>(image.data()), image.size()});
  if (!pages.ok()) {
    FUZZ_CHECK(pages.Is(Code::kCorrupt) || pages.Is(Code::kNotFound));
    return;
  }
  static const std::string directory = Directory("edited");
  for (const char* name : {"data.mdb", "lock.mdb", "STATE"}) {
    std::filesystem::remove(directory + "/" + name);
  }
  std::ofstream(directory + "/data.mdb", std::ios::binary) << image;
  if (CheckTablesOf(directory).ok()) Use(directory);
}

std::string Seed(std::initializer_list<std::array<uint16_t, 4>> edits, bool mend) {
  std::string seed;
  for (const auto& [kind, page, offset, value] : edits) {
    seed += {static_cast<char>(kind), static_cast<char>(page)};
    for (const uint16_t word : {offset, value}) {
      seed += {static_cast<char>(word), static_cast<char>(word >> 8)};
    }
  }
  return seed + (mend ? '\1' : '\0');
}

}  // namespace

std::vector<std::string> fuzz::Seeds() {
  std::vector<std::string> seeds = {Seed({}, false), Seed({}, true)};
  const auto pages = static_cast<uint16_t>(Image().size() / kPage);
  for (uint16_t page = 0; page < pages; ++page) {
    seeds.push_back(Seed({{2, page, 12, 2}}, true));             // one node more than there are
    seeds.push_back(Seed({{0, page, kPage - 20, 0xff}}, true));  // in the last node
    seeds.push_back(Seed({{1, page, 16, 4000}}, true));          // where the first node is
    seeds.push_back(Seed({{0, page, 2000, 1}}, false));          // often in what is free
  }
  for (uint16_t field = 24; field < 152; field += 8) {
    seeds.push_back(Seed({{2, 0, field, 1}}, false));
    seeds.push_back(Seed({{2, 1, field, 1}}, false));
  }
  return seeds;
}

}  // namespace prefixfs

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  prefixfs::Check(data, size);
  return 0;
}
